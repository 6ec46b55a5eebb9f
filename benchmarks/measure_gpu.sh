#!/usr/bin/env bash
# All that is measured on a GPU for the committed data and results, in parts that end within ten minutes each, and that
# leave behind what they have if they are cut off. Kernels that were compiled elsewhere, with the same torch and triton,
# spare the GPU the wait: diode compile-ahead fills a folder, `tar -C FOLDER -cJf kernels.tar.xz kernels` packs it.
set -euo pipefail

usage() {
  cat <<'END'
Usage: measure_gpu.sh PART OUT [KERNELS.tar.xz]...

  truth       every choice of the test problems, near-winners twice         OUT/h200_test.parquet
  training    a sweep of training problems from no kernel at all, and how   OUT/h200_train.parquet, collection_h200.json
              far its labels can be trusted
  timing      the sweep's timer beside others                               OUT/timing_h200.json
  sweep       training problems that the part training has not measured,    OUT/h200_train_sweep.parquet
              from the kernels that are there
  compile     whole compiles: what searching costs and ends with            OUT/compile_h200.json
  exhaustive  the same for EXHAUSTIVE searches                              OUT/compile_h200.json
  checks      numbers, statistics and real models, as pytest -m gpu         OUT/gpu_tests_h200.json

Called again with the same OUT, a part goes on where it ended; timing begins anew.

SECONDS_OF_PART (default 540)  what a part may take
PYTHON (default python3)       the interpreter
OPS (default all)              the ops of training, sweep, compile and exhaustive, as in OPS=mm,bmm
ANY_OP=1                       compile and exhaustive also of ops that the model does not know
DIODE_CACHE                    where kernels are kept; by default a folder beside OUT. Training has an empty one.

Run it from the root of a checkout.
END
}

if [[ ${1-} == --help ]]; then
  usage
  exit
fi
if (($# < 2)); then
  usage >&2
  exit 2
fi
part=$1 out=$2
shift 2
case $part in
  truth | training | timing | sweep | compile | exhaustive | checks) ;;
  *)
    usage >&2
    exit 2
    ;;
esac
mkdir -p -- "$out"
out=$(cd -- "$out" && pwd)
python=${PYTHON:-python3} seconds=${SECONDS_OF_PART:-540} ops=${OPS:-}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
began=$SECONDS
if [[ $part == training ]]; then
  # from no kernel at all, so that compiling is counted
  DIODE_CACHE=$(mktemp -d)
  trap 'rm -rf -- "$DIODE_CACHE"' EXIT
else
  DIODE_CACHE=${DIODE_CACHE:-$(dirname -- "$out")/diode_cache}
  mkdir -p -- "$DIODE_CACHE"
fi
export DIODE_CACHE

left() { # seconds that are left of the part, less what the rest of it needs
  echo $((seconds - (SECONDS - began) - ${1:-0}))
}

unpack() {
  local archive
  for archive in "$@"; do # by python, for there may be no program for this kind of archive
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="data")' \
      "$archive" "$DIODE_CACHE"
  done
  echo "$(find "$DIODE_CACHE" -name '*.kernel' | wc -l) kernels are there, after $((SECONDS - began)) s"
}

collect() { # OUTPUT SHAPESET MORE...
  local output=$1 shapeset=$2
  shift 2
  if [[ -e $output && ! -e $output.journal ]]; then
    echo "$output is complete"
    return
  fi
  "$python" -m diode.cli collect-shapeset --shapeset "$shapeset" --output "$output" --budget "$(left 20)s" "$@"
}

compile() { # PART...
  local more=()
  if [[ -e $out/compile_h200.json ]]; then more+=(--resume); fi
  if [[ -n ${ANY_OP:-} ]]; then more+=(--any-op); fi
  "$python" benchmarks/compile.py --output "$out/compile_h200.json" --seconds "$(left 30)" --ops "$ops" \
    --parts "$@" ${more[@]+"${more[@]}"}
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu,power.draw --format=csv,noheader || true
case $part in
  truth)
    unpack "$@"
    collect "$out/h200_test.parquet" diode_datasets/h200_test_shapeset.json --confirm
    ;;
  training)
    "$python" benchmarks/collection.py --shapeset diode_datasets/h200_train_shapeset.json --ops "$ops" \
      --seconds "$(left 200)" --data "$out/h200_train.parquet" --output "$out/collection_h200.json"
    ;;
  timing)
    "$python" benchmarks/timing.py --output "$out/timing_h200.json"
    ;;
  sweep)
    unpack "$@"
    without=()
    if [[ -e $out/h200_train.parquet ]]; then without=(--without "$out/h200_train.parquet"); fi
    collect "$out/h200_train_sweep.parquet" diode_datasets/h200_train_shapeset.json --choices 12 --share-choices \
      --ops "$ops" ${without[@]+"${without[@]}"}
    ;;
  compile)
    compile problems models
    ;;
  exhaustive)
    compile exhaustive
    ;;
  checks)
    resume=()
    if [[ -e $out/gpu_tests_h200.json ]]; then resume=(--resume); fi
    "$python" benchmarks/gpu_checks.py --output "$out/gpu_tests_h200.json" --seconds "$(left 60)" \
      ${resume[@]+"${resume[@]}"} || failed=true
    ;;
esac
echo "$part took $((SECONDS - began)) s"
ls -l "$out"
! ${failed:-false}
