# shellcheck shell=bash
# What the workflows share: words of the command line, steps that say what they do, and diode itself.
# Read by them, not run.

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# The value of an option: value_of OPTION NUMBER_OF_WORDS_LEFT VALUE
value_of() {
  (($2 >= 2)) || fail "$1 needs a value (--help explains)"
  [[ -n $3 && $3 != --* ]] || fail "$1 needs a value, not '$3' (--help explains)"
}

need_count() { # OPTION VALUE
  [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail "$1 $2: must be a whole number from 1 on"
}

need_seed() {
  [[ $1 =~ ^[0-9]{1,9}$ ]] || fail "--seed $1: must be a whole number from 0 on"
}

need_device() {
  [[ $1 =~ ^(cpu|cuda|cuda:[0-9]+(,[0-9]+)*)$ ]] || fail "--device $1: use cpu, cuda, or cuda:0,1"
}

need_format() {
  [[ $1 =~ ^(json|msgpack|parquet)$ ]] || fail "--format $1: use json, msgpack or parquet"
}

need_search_space() {
  [[ $1 =~ ^(EXHAUSTIVE|DEFAULT)$ ]] || fail "--search-space $1: use EXHAUSTIVE or DEFAULT"
}

need_python() {
  command -v "$1" >/dev/null || fail "--python $1: cannot be run"
}

# The interpreter of the checkout's environment, if that was built.
default_python() { # WORKFLOWS_FOLDER
  if [[ -x $1/../.venv/bin/python ]]; then
    printf '%s' "$1/../.venv/bin/python"
  else
    printf 'python3'
  fi
}

say() {
  printf '\n==> %s\n' "$*"
}

# A collection that is complete is not repeated; one that was stopped, or whose budget was spent, goes on.
stands() { # OUTPUT
  [[ -e $1 && ! -e $1.journal ]]
}
