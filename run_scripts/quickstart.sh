#!/usr/bin/env bash
# From a fresh clone to summaries of long documents, on a CPU, without any download but the packages.
#
#   run_scripts/quickstart.sh [KEY=value …]
#
# Installs into .venv, makes a corpus of the Python installation's own sources and docstrings, trains a small
# Poolingformer-BART from scratch on documents of up to 4,096 tokens, summarizes some that it has not seen with beam 5,
# and scores that with ROUGE. Under ten minutes on two cores after the installation. Run again, it does only what is
# missing; killed, it goes on from its last checkpoint.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/quickstart-run" # the folder of all that it makes
  "venv=$root/.venv" # the virtual environment, made if it is not there
  "install=1" # 0: use the virtual environment as it is
  "torch_index=" # see install.sh
  "data=" # a data folder that preprocessing made, instead of the corpus of Python sources
  "vocabulary=4000" # symbols of the sentencepiece model
  "updates=1000" # of training; this and the next four were chosen for about six minutes on two cores
  "dim=128" # width of the model; heads are at most 64 wide
  "layers=2" # of the encoder, and of the decoder; the encoder's last has level two
  "max_tokens=4096" # of a batch of documents, padding included
  "lr=2e-3" # peak learning rate, after a tenth of the updates
  "examples=50" # documents to summarize
  "summary_length=100" # the most tokens of a generated summary
)
parse_options "$@"
require_count vocabulary updates dim layers max_tokens examples summary_length
((updates >= 1 && examples >= 1)) || fail "updates= and examples= must be 1 or more"

total_start=$SECONDS
announce() {
  printf '\n[%s/6] %s  (%d:%02d)\n' "$1" "$2" $(((SECONDS - total_start) / 60)) $(((SECONDS - total_start) % 60))
}

# logged NAME COMMAND…: runs it with its output in a file of the output folder, and shows the end of that if it fails.
logged() {
  local log=$out/$1
  shift
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 25 "$log"
    fail "that did not work; the whole output is in $log"
  fi
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
venv=$(absolute "$venv")

announce 1 "Installation into $venv"
if [[ $install == 1 ]]; then
  "$root/run_scripts/install.sh" "venv=$venv" extras=plot "torch_index=$torch_index"
fi
python=$venv/bin/python
[[ -x $python ]] || fail "$venv has no bin/python: leave out install=0"
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

announce 2 "Corpus: Python sources, and their docstrings as summaries"
if [[ -z $data ]]; then
  data=$out/corpus
  # the corpus changes with the installed packages, so one of an earlier run may be out of date
  logged corpus.out "$python" -m preprocess.stdlib --output-folder "$data" --overwrite \
    --sentencepiece-train "$vocabulary"
  grep '^[a-z]* .* %)' "$out/corpus.out" || true
fi
logged few.out "$python" "$root/run_scripts/few_examples.py" "$data" "$examples" valid test

announce 3 "Training: $updates updates"
train=(
  "$python" -m fairseq_cli.train "$data" --user-dir "$root/fairseq_poolingformer" --task long_summarization --cpu
  --arch poolingformer_bart_tiny --max-source-positions 4096 --max-target-positions 256 --max-target-length 256
  --encoder-embed-dim "$dim" --encoder-ffn-embed-dim $((4 * dim)) --encoder-attention-heads $(((dim + 63) / 64))
  --decoder-attention-heads $(((dim + 63) / 64)) --encoder-layers "$layers" --decoder-layers "$layers" --pooled-layers $((layers - 1))
  # normalization first and no dropout: what learns most in so few updates from scratch
  --encoder-normalize-before --decoder-normalize-before --dropout 0 --attention-dropout 0 --activation-dropout 0
  --max-tokens "$max_tokens" --batch-size 8 --required-batch-size-multiple 1 --num-workers 1 --seed 1
  --criterion linear_cross_entropy --label-smoothing 0.1
  --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --weight-decay 0.01 --clip-norm 1
  --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates $(((updates + 9) / 10)) --total-num-update "$updates"
  --max-update "$updates" --valid-subset valid-few
  --save-dir "$out/checkpoints" --save-interval-updates 100 --keep-interval-updates 1 --no-epoch-checkpoints
  --log-format json --log-interval 10 --log-file "$out/train.log"
)
# A finished training is not done again, and one of other settings or another corpus is not gone on with.
settings="${train[*]} $(cksum <"$data/train.source-target.source.bin")"
if [[ ! -f $out/settings || $(<"$out/settings") != "$settings" ]]; then
  rm -rf "$out/checkpoints" "$out/train.log" "$out/trained"
  printf '%s\n' "$settings" >"$out/settings"
elif [[ ! -f $out/trained && -f $out/checkpoints/checkpoint_last.pt ]]; then
  echo "  going on from the checkpoint of an earlier run"
fi
if [[ -f $out/trained ]]; then
  echo "  done by an earlier run; delete $out to start anew"
else
  # one line for every 50 updates, in words and without waiting for more (mawk would)
  progress='s/.*train_inner.*"nll_loss": "([0-9.]+)".*"num_updates": "([0-9]*[05]0)".*/  update \2: loss \1 bits per token/p'
  "${train[@]}" 2>&1 </dev/null | tee "$out/train.out" | sed --unbuffered --quiet --regexp-extended "$progress" || {
    tail -n 25 "$out/train.out"
    fail "training stopped; its whole output is in $out/train.out. The same command goes on from the last checkpoint"
  }
  touch "$out/trained"
fi

announce 4 "Summaries of $examples unseen documents, beam 5"
logged generate.out "$python" -m fairseq_cli.generate "$data" --user-dir "$root/fairseq_poolingformer" \
  --task long_summarization --path "$out/checkpoints/checkpoint_last.pt" --gen-subset test-few --cpu \
  --beam 5 --lenpen 2 --max-len-b "$summary_length" --no-repeat-ngram-size 3 \
  --max-tokens "$max_tokens" --batch-size 8 --num-workers 1

announce 5 "ROUGE"
references=$data/test-few.summary.txt
logged rouge.txt "$python" -m fairseq_poolingformer.cli.score "$out/generate.out" --references "$references" \
  --output "$out/summaries.txt" --json "$out/rouge.json" --no-perl
logged rouge-lead.txt "$python" -m fairseq_poolingformer.cli.score --documents "$data/test-few.document.txt" \
  --lead-words 60 --references "$references" --json "$out/rouge-lead.json" --no-perl
"$python" "$root/run_scripts/compare.py" rouge "this model=$out/rouge.json" \
  "first 60 words of the document=$out/rouge-lead.json"
echo
"$python" "$root/run_scripts/show_summaries.py" "$out/summaries.txt" "$references" --ids "$data/test-few.id.txt"

announce 6 "Plot of the loss"
"$python" "$root/run_scripts/plot_loss.py" "$out/train.log" --output "$out/loss.png"

cat <<TEXT

Done. All is in $out. So small a model, trained from nothing for minutes, learns how docstrings begin and
not yet to read: its summaries hardly differ. The papers start from BART's weights and train on GPUs for days:
run_scripts/summarization/arxiv_4k.sh --help

With documents of your own, in JSON lines with "article" and "abstract":

  . $venv/bin/activate
  poolingformer-preprocess arxiv_pubmed --train train.jsonl --valid valid.jsonl --test test.jsonl \\
      --sentencepiece-train 8000 --output-folder my-data
  run_scripts/quickstart.sh data=my-data out=my-run
TEXT
