# shellcheck shell=bash
# Functions for all run scripts, which source it. Needs bash 4.4 or later.
#
# Every script takes its options as KEY=value arguments. It lists them in an array "options" of lines
#   "key=default" # meaning
# and calls parse_options "$@", which makes a variable of each. --help prints the header of the script and this array.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rest=() # the arguments after --

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# cpu_count: prints the number of CPUs that this process may use; nproc alone prints OMP_NUM_THREADS where that is set.
cpu_count() {
  env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
}

print_help() {
  local tables=("$0")
  # shellcheck disable=SC2154 # experiments.sh has it
  [[ -z ${shared_options[*]-} ]] || tables+=("$root/run_scripts/experiments.sh")
  sed -n '2,/^$/{/^#/s/^# \{0,1\}//p;}' "$0"
  echo
  echo "Options, KEY=value, with their defaults:"
  # shellcheck disable=SC2016 # the pattern is the text of a script, which has a literal $root
  sed -n '/^[a-z_]*options=(/,/^)/{s#\$root/##;s/^  "\([^"]*\)" # \(.*\)$/  \1\n      \2/p;}' "${tables[@]}" |
    awk '/^  [a-z0-9_]+=/ {split($1, key, "="); show = !seen[key[1]]++} show' # a script's own default comes first
}

# parse_options ARGUMENT…: sets a variable for each of "options", to an argument's value or else the default.
parse_options() {
  local argument key names=" "
  # shellcheck disable=SC2154 # the script has it
  for argument in "${options[@]}"; do
    printf -v "${argument%%=*}" '%s' "${argument#*=}"
    [[ $names == *" ${argument%%=*} "* ]] || names+="${argument%%=*} " # a script's own default comes after the common one
  done
  while (($#)); do
    argument=$1
    shift
    case $argument in
      -h | --help) print_help && exit 0 ;;
      --) rest=("$@") && break ;;
      *=*)
        key=${argument%%=*}
        [[ $names == *" $key "* ]] || fail "there is no option $key=; the options are:$names(see --help)"
        printf -v "$key" '%s' "${argument#*=}"
        ;;
      *) fail "options are KEY=value, got $argument (see --help)" ;;
    esac
  done
  [[ $names != *" dry_run "* ]] || require_switch dry_run
}

# require_count KEY…: stops unless each variable is a whole number, 0 or more.
require_count() {
  local key
  for key; do
    [[ ${!key} =~ ^(0|[1-9][0-9]*)$ ]] || fail "$key= must be a whole number, got '${!key}'"
  done
}

# require_positive KEY…: stops unless each variable is a whole number, 1 or more.
require_positive() {
  local key
  require_count "$@"
  for key; do
    ((${!key} > 0)) || fail "$key= must be 1 or more, got ${!key}"
  done
}

# require_number KEY…: stops unless each variable is a number such as 2, 0.5 or 1e-4.
require_number() {
  local key
  for key; do
    [[ ${!key} =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ ]] || fail "$key= must be a number such as 0.5 or 1e-4, got '${!key}'"
  done
}

# require_switch KEY…: stops unless each variable is 0 or 1.
require_switch() {
  local key
  for key; do
    [[ ${!key} == [01] ]] || fail "$key= must be 0 or 1, got '${!key}'"
  done
}

# require_precision: stops unless precision= is one that trainings on a CPU have.
require_precision() {
  # shellcheck disable=SC2154 # the script has it
  [[ $precision == bf16 || $precision == fp32 ]] || fail "precision= must be bf16 or fp32, got $precision"
}

# absolute PATH: prints the path from /, whether it exists or not.
absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$PWD/$1" ;;
  esac
}

# find_python PYTHON: prints the interpreter: PYTHON if given, else the active virtual environment's, else .venv's, else
# python3.
find_python() {
  local candidate
  for candidate in "$1" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$root/.venv/bin/python"; do
    if [[ -n $candidate ]]; then
      [[ -x $candidate ]] && echo "$candidate" && return
      [[ $candidate != "$1" ]] || fail "python=$1 is no program"
    fi
  done
  command -v python3 || fail "there is no Python: run run_scripts/install.sh, or give python="
}

# quote WORD: sets "quoted" to the word as it is pasted into a shell.
quote() {
  quoted=$1
  [[ $quoted =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]] || quoted=${quoted@Q}
}

# print_command WORD…: prints a command for pasting into a shell, each flag on a line of its own.
print_command() {
  local word line="" quoted
  for word; do
    quote "$word"
    word=$quoted
    if [[ -z $line ]]; then
      line=$word
    elif [[ $word == --* ]]; then
      line+=$' \\\n    '$word
    else
      line+=" $word"
    fi
  done
  printf '%s\n' "$line"
}

# run WORD…: prints a command and runs it, unless this is a dry run.
run() {
  print_command "$@"
  # shellcheck disable=SC2154 # an option of the script
  if [[ $dry_run != 1 ]]; then
    start "$@"
    finish
  fi
}

# made FILE: whether an earlier run has made it; a dry run prints all commands.
made() {
  # shellcheck disable=SC2154 # an option of the script
  [[ $dry_run != 1 && -f $1 ]]
}

# train_model NAME DATA UPDATES LR FLAG…: trains a small model on a CPU from out/DATA into out/NAME, with a measured budget,
# unless an earlier run has finished it. The script sets out, python, precision, and in "model" the flags of all its models.
train_model() {
  # shellcheck disable=SC2154 # the script has them
  local folder=$out/$1 data=$2 updates=$3 peak=$4
  shift 4
  ! made "$folder/result.json" || return 0
  [[ $dry_run == 1 ]] || { rm -rf "$folder" && mkdir -p "$folder"; }
  [[ $precision == fp32 ]] || set -- "$@" "--$precision"
  # shellcheck disable=SC2154 # the script has it
  run "$python" "$root/run_scripts/equal_budget.py" "$folder/result.json" --log "$folder/train.log" -- \
    "$python" -m fairseq_cli.train "$out/$data" "${model[@]}" \
    --cpu --distributed-world-size 1 --num-workers 0 --required-batch-size-multiple 1 \
    --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1 \
    --lr "$peak" --lr-scheduler polynomial_decay --warmup-updates $((updates / 10 + 1)) \
    --total-num-update "$updates" --max-update "$updates" --disable-validation \
    --save-dir "$folder/checkpoints" --no-epoch-checkpoints \
    --log-format json --log-interval $((updates < 20 ? updates : 20)) --log-file "$folder/train.log" "$@"
}

started=() # process groups of the commands that the script has started and not yet waited for
asked=0    # 1: SIGUSR1 has come, which asks a training to save and stop

# start WORD…: starts a command in the background, as a process group of its own. A signal that ends the script then ends
# everything that it has started; SIGUSR1 is passed on.
start() {
  trap 'asked=1; signal_started USR1' USR1
  trap 'end_started SIGHUP 129' HUP
  trap 'end_started SIGINT 130' INT
  trap 'end_started SIGTERM 143' TERM
  set -m # without job control, bash gives the command no group of its own
  "$@" </dev/null &
  set +m
  started+=($!)
}

# finish: waits for all that was started. Sets "failed" to the numbers, from 0, of those that failed; returns the exit
# status of the last of them.
finish() {
  local number status=0
  failed=()
  for number in "${!started[@]}"; do
    wait_for "${started[number]}" || {
      status=$?
      failed+=("$number")
    }
  done
  started=()
  trap - HUP INT TERM USR1
  return "$status"
}

# wait_for PROCESS: waits until it ends, also when SIGUSR1 interrupts the waiting; returns its status.
wait_for() {
  local status
  while :; do
    asked=0 status=0
    wait "$1" || status=$?
    ((asked && status > 128)) || return "$status"
  done
}

signal_started() {
  local group
  for group in "${started[@]}"; do
    kill "-$1" -- "-$group" 2>/dev/null || true
  done
}

end_started() {
  trap '' HUP INT TERM
  printf '%s: %s, ending what was started\n' "$(basename "$0")" "$1" >&2
  signal_started TERM
  wait
  exit "$2"
}

# make_environment VENV PYTHON TORCH PACKAGE…: a virtual environment with these, unless it is there. PyTorch comes from
# torch_index, if the script has that option and it is given.
make_environment() {
  local venv=$1 python=$2 torch=$3 packages=("${@:4}")
  local wanted="$torch ${packages[*]}" mark=$venv/installed
  [[ ! -f $mark || $(<"$mark") != "$wanted" ]] || return 0
  run "$python" -m venv "$venv"
  run "$venv/bin/python" -m pip install --disable-pip-version-check ${torch_index:+--index-url "$torch_index"} "$torch"
  run "$venv/bin/python" -m pip install --disable-pip-version-check "$torch" "${packages[@]}"
  [[ ${dry_run:-0} == 1 ]] || printf '%s\n' "$wanted" >"$mark"
}
