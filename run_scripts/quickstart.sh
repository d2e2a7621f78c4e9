#!/usr/bin/env bash
# From a fresh clone to summaries of long documents, on a CPU, without any download but the packages.
#
#   run_scripts/quickstart.sh [KEY=value …]
#
# Installs into .venv, makes documents of 300 to 2,000 words with five facts scattered in real prose, and fine-tunes the
# small demo model that comes with the package on them: as a Poolingformer, and with one plain window that sees as many
# keys, the fair control. Then it summarizes documents whose names neither has seen, and counts the facts that
# are right. systems= and seeds= add controls to the table. Run again, it does only what is missing; killed, it resumes
# from its last checkpoint. docs/quickstart.md explains what it shows.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/quickstart-run" # the folder of all that it makes
  "venv=$root/.venv" # the virtual environment, made if it is not there
  "install=1" # 0: use the virtual environment as it is
  "python=" # an interpreter to use instead, without installation
  "torch_index=" # see install.sh
  "data=" # a data folder with the demo model's tokenizer, instead of the made documents
  "documents=800" # made to train on
  "words=300,2000" # of prose in a document, the fewest and the most
  "papers=2,4" # of a document, the fewest and the most; fewer put facts farther from what decides about them
  "systems=one_softmax,equal_keys" # of demo_model/systems.txt: also two_levels, dilated, equal_reach, full, paper …
  "seeds=1" # of the documents, of their order, and of what a system adds to the demo model; each makes a corpus
  "baseline=equal_keys" # the system that the others are compared with
  "updates=100" # of each training; this and the next were chosen for five minutes of one core
  "max_tokens=8192" # of a batch of documents, padding included
  "lr=5e-4" # peak learning rate, after a tenth of the updates
  "precision=fp32" # of training; or bf16
  "examples=100" # documents to summarize
  "beam=2" # of the search
  "summary_length=60" # the most tokens of a generated summary
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_positive documents updates max_tokens examples beam summary_length
require_number lr
require_precision
for range in words papers; do
  [[ ${!range} =~ ^[0-9]+,[0-9]+$ ]] || fail "$range= must be two numbers, as in words=300,2000, got '${!range}'"
done
demo=$root/fairseq_poolingformer/demo_model
IFS=, read -ra all_systems <<<"$systems"
IFS=, read -ra all_seeds <<<"$seeds"

# read_system NAME: sets the columns of systems.txt, the number of keys that a token sees in an upper layer, and the flags
# of its attention.
read_system() {
  local more first=${demo_windows%%all*} last=${demo_windows//[^,]/}
  first=${first//[^,]/} # of "4,16,all,all" a comma for each layer before the upper ones
  read -r _ w1 w2 pool more < <(grep "^$1 " "$root/run_scripts/demo_model/systems.txt") ||
    fail "systems= has $1, which is not in run_scripts/demo_model/systems.txt"
  attention=(--window-size "${demo_windows//all/$w1}" --pooled-layers none)
  keys="all keys"
  [[ $w1 == all ]] || keys="$((2 * w1)) keys"
  if [[ $pool != - ]]; then
    attention[3]=${#first}-${#last}
    attention+=(--pooled-window-size "$w2" --pool-type "$pool")
    keys="$((2 * w1 + 2 * w2 / 4)) keys"
  fi
  [[ $more == - ]] || { read -ra more <<<"$more" && attention+=("${more[@]}"); }
}
demo_windows=$(sed -n 's/.*"window_size": "\(.*\)".*/\1/p' "$demo/config.json")
for system in "${all_systems[@]}"; do read_system "$system"; done

total_start=$SECONDS
announce() {
  printf '\n[%s/6] %s  (%d:%02d)\n' "$1" "$2" $(((SECONDS - total_start) / 60)) $(((SECONDS - total_start) % 60))
}

# logged NAME COMMAND…: runs it with its output in a file of the output folder, and shows the end of that if it fails.
logged() {
  local log=$out/$1
  shift
  [[ $dry_run == 0 ]] || { print_command "$@" && return; }
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 25 "$log"
    fail "that did not work; the whole output is in $log. The same command continues from here"
  fi
}

out=$(absolute "$out")
[[ $dry_run == 1 ]] || mkdir -p "$out"
venv=$(absolute "$venv")

if [[ -z $python ]]; then
  announce 1 "Installation into $venv"
  [[ $install == 0 || $dry_run == 1 ]] ||
    "$root/run_scripts/install.sh" "venv=$venv" extras=plot "torch_index=$torch_index"
  python=$venv/bin/python
  [[ -x $python ]] || fail "$venv has no bin/python: leave out install=0"
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
# sums, and so figures, do not depend on the number of CPUs; these train and search side by side instead
export OMP_NUM_THREADS=1

announce 2 "Corpus"
[[ -z $data ]] || cmp -s "$data/dict.source.txt" "$demo/dict.source.txt" ||
  fail "$data has another vocabulary than the demo model: make it with" \
    "--sentencepiece-model $demo/tokenizer/sentencepiece.model"
# corpus_of SEED: prints the data folder.
corpus_of() {
  printf '%s\n' "${data:-$out/corpus_$1}"
}
for seed in "${all_seeds[@]}"; do
  [[ -n $data ]] || logged "corpus_$seed.out" "$python" -m fairseq_poolingformer.cli.main preprocess facts --overwrite \
    --output-folder "$(corpus_of "$seed")" --sentencepiece-model "$demo/tokenizer/sentencepiece.model" --seed "$seed" \
    --train "$documents" --valid 20 --test "$examples" --words "${words%,*}" "${words#*,}" \
    --papers "${papers%,*}" "${papers#*,}"
  [[ ! -f $out/corpus_$seed.out ]] || sed -n 's/^WARNING: /  /p' "$out/corpus_$seed.out"
  logged "few_$seed.out" "$python" "$root/run_scripts/few_examples.py" "$(corpus_of "$seed")" "$examples" valid test
done
if [[ -z $data ]]; then
  echo "  $documents documents of ${words/,/ to } words: sentences of Python's documentation, and among them five facts"
  echo "  about a library, a mill and so on. What the register says is right; what gossip says of the same is wrong."
fi
logged demo_model.out "$python" -m fairseq_poolingformer.models.demo_model "$out/demo_model.pt"

# counted TEXT LAST: says how many lines of its input there have been, after each tenth.
counted() {
  local count=0
  while read -r; do
    ((++count % 10 && count != $2)) || printf '  %s: %d of %d summaries\n' "$1" "$count" "$2"
  done
}

# side_by_side FUNCTION: calls it with each system and seed, as many at a time as there are CPUs.
side_by_side() {
  local system seed
  for seed in "${all_seeds[@]}"; do
    for system in "${all_systems[@]}"; do
      [[ $dry_run == 0 ]] || { "$1" "$system" "$seed" && continue; }
      start "$1" "$system" "$seed"
      ((${#started[@]} < $(cpu_count))) || finish
    done
  done
  finish
}

# fine_tune SYSTEM SEED: trains from the demo model, in a folder of that name.
fine_tune() {
  local folder=$out/$1_$2 corpus settings progress
  read_system "$1"
  corpus=$(corpus_of "$2")
  local train=(
    "$python" -m fairseq_cli.train "$corpus" --user-dir "$root/fairseq_poolingformer" --task long_summarization --cpu
    --distributed-world-size 1 --finetune-from-model "$out/demo_model.pt" --arch poolingformer_demo
    --max-source-positions 4096 "${attention[@]}"
    --max-tokens "$max_tokens" --batch-size 8 --required-batch-size-multiple 1 --num-workers 1 --seed "$2"
    --criterion linear_cross_entropy --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --weight-decay 0.01
    --clip-norm 1 --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates $(((updates + 9) / 10))
    --total-num-update "$updates" --max-update "$updates" --valid-subset valid-few
    --save-dir "$folder/checkpoints" --save-interval-updates 50 --keep-interval-updates 1 --no-epoch-checkpoints
    --log-format json --log-interval 10 --log-file "$folder/train.log"
  )
  [[ $precision == fp32 ]] || train+=("--$precision")
  printf '  %s, seed %s: a token sees %s in an upper layer\n    %s\n' "$1" "$2" "$keys" "${attention[*]}"
  [[ $dry_run == 0 ]] || { print_command "${train[@]}" && return; }
  # A finished training is not done again, and one of other settings or another corpus is not resumed.
  settings="${train[*]} $(cksum <"$corpus/train.source-target.source.bin") $(cksum <"$demo/model.safetensors")"
  if [[ ! -f $folder/settings || $(<"$folder/settings") != "$settings" ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    printf '%s\n' "$settings" >"$folder/settings"
  elif [[ ! -f $folder/trained && -f $folder/checkpoints/checkpoint_last.pt ]]; then
    echo "  resuming from the checkpoint of an earlier run"
  fi
  if [[ -f $folder/trained ]]; then
    echo "  done by an earlier run; delete $folder to start anew"
    return
  fi
  # a line of each ten updates, in words and without waiting for more (mawk would)
  progress='s/.*train_inner.*"nll_loss": "([0-9.]+)".*"num_updates": "([0-9]+)".*/  '"$1, seed $2"', update \2: loss \1 bits per token/p'
  "${train[@]}" 2>&1 </dev/null | tee "$folder/train.out" | sed --unbuffered --quiet --regexp-extended "$progress" || {
    tail -n 25 "$folder/train.out"
    fail "training stopped; its whole output is in $folder/train.out. The same command resumes from the last checkpoint"
  }
  touch "$folder/trained"
}

# summarize SYSTEM SEED: summaries of the unseen documents, and their ROUGE; once for a model and a way to search.
summarize() {
  local name=$1_$2 corpus search=(--beam "$beam" --max-len-b "$summary_length")
  local folder=$out/$name
  corpus=$(corpus_of "$2")
  [[ ! -f $folder/summarized || $(<"$folder/summarized") != "$examples ${search[*]}" ]] || return 0
  local generate=(
    "$python" -u -m fairseq_cli.generate "$corpus" --user-dir "$root/fairseq_poolingformer"
    --task long_summarization --path "$folder/checkpoints/checkpoint_last.pt" --gen-subset test-few --cpu
    "${search[@]}" --max-tokens "$max_tokens" --batch-size 8 --num-workers 1
  )
  if [[ $dry_run == 1 ]]; then
    print_command "${generate[@]}"
  else
    "${generate[@]}" 2>&1 </dev/null | tee "$folder/generate.out" | grep --line-buffered ^D- |
      counted "$1, seed $2" "$examples" || {
      tail -n 25 "$folder/generate.out"
      fail "that did not work; the whole output is in $folder/generate.out. The same command continues from here"
    }
  fi
  logged "$name/rouge.txt" "$python" -m fairseq_poolingformer.cli.main score "$folder/generate.out" --no-perl \
    --references "$corpus/test-few.summary.txt" --output "$folder/summaries.txt" --json "$folder/rouge.json"
  [[ $dry_run == 1 ]] || printf '%s\n' "$examples ${search[*]}" >"$folder/summarized"
}

announce 3 "Trainings from the demo model, $updates updates each"
echo "  one_softmax has the two levels of Poolingformer, equal_keys one window; see run_scripts/demo_model/systems.txt"
side_by_side fine_tune

announce 4 "Summaries of $examples documents with names that no model has seen"
rouge=() summaries=() logs=() references=() texts=() lead=()
for seed in "${all_seeds[@]}"; do
  corpus=$(corpus_of "$seed")
  references+=("$corpus/test-few.summary.txt") texts+=("$corpus/test-few.document.txt")
  logged "rouge-lead_$seed.txt" "$python" -m fairseq_poolingformer.cli.main score --documents "${texts[-1]}" \
    --lead-words 60 --references "${references[-1]}" --json "$out/rouge-lead_$seed.json" --no-perl
  lead+=("first 60 words of the document=$out/rouge-lead_$seed.json")
done
side_by_side summarize
for system in "${all_systems[@]}"; do
  for seed in "${all_seeds[@]}"; do
    rouge+=("$system=$out/${system}_$seed/rouge.json")
    summaries+=("$system=$out/${system}_$seed/summaries.txt")
  done
  logs+=("$out/${system}_${all_seeds[0]}/train.log")
  [[ $system != "$baseline" ]] || compared=1
done

announce 5 "Results"
[[ $dry_run == 0 ]] || exit 0
"$python" "$root/run_scripts/show_summaries.py" "$out/${all_systems[0]}_${all_seeds[0]}/summaries.txt" \
  "${references[0]}" --ids "$(corpus_of "${all_seeds[0]}")/test-few.id.txt"
"$python" "$root/run_scripts/compare.py" rouge "${rouge[@]}" "${lead[@]}"
if [[ -z $data ]]; then
  echo
  "$python" "$root/run_scripts/demo_model/count_facts.py" "${summaries[@]}" --references "${references[@]}" \
    --documents "${texts[@]}" ${compared:+--baseline "$baseline"}
fi

announce 6 "Plot of the loss"
"$python" "$root/run_scripts/plot_loss.py" "${logs[@]}" --output "$out/loss.png"

read_system "${all_systems[0]}"
cat <<TEXT

Done. All is in $out.
So small a model reads what it was made to read: docs/quickstart.md says how.
To start from BART's weights instead: docs/summarization.md

With documents of your own, in papers.jsonl, a line each:

  {"document": "The whole text.", "summary": "What it says, in short."}

  . $venv/bin/activate
  poolingformer preprocess arxiv_pubmed --data papers.jsonl --valid-share 0.1 \\
      --sentencepiece-model $demo/tokenizer/sentencepiece.model \\
      --output-folder my-data
  fairseq-train my-data --user-dir "\$(poolingformer user-dir)" --task long_summarization \\
      --finetune-from-model $out/demo_model.pt --arch poolingformer_demo \\
      --max-source-positions 4096 ${attention[*]} \\
      --criterion linear_cross_entropy --optimizer fused_adamw --lr $lr \\
      --max-tokens $max_tokens --max-epoch 10 --save-dir my-run
  poolingformer summarize --model my-run/checkpoint_best.pt paper.txt
TEXT
