# The plugin with fairseq and transformers, and a PyTorch with CUDA, for clusters.
#
#   docker build --tag poolingformer .
#   docker run --rm --gpus all --ipc host --volume "$PWD:/work" poolingformer fairseq-train data-bin/arxiv \
#       --user-dir /opt/poolingformer/fairseq_poolingformer --task long_summarization …
#
# PyTorch's wheels carry CUDA; the host needs NVIDIA's driver and its container toolkit. On Python 3.12 and x86-64
# fairseq comes prebuilt. Singularity and Apptainer: apptainer build poolingformer.sif docker-daemon://poolingformer:latest
FROM python:3.12-slim-bookworm

# The Triton kernels compile a small C file when they first run.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/poolingformer
COPY README.md LICENSE setup.py pyproject.toml ./
COPY run_scripts run_scripts
COPY preprocess preprocess
COPY fairseq_poolingformer fairseq_poolingformer
ARG EXTRAS=huggingface,data,tensorboard,wandb
ENV PIP_NO_CACHE_DIR=1
RUN run_scripts/install.sh venv=/opt/venv python=python3.12 "extras=$EXTRAS"

ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH
WORKDIR /work
CMD ["poolingformer", "--help"]
