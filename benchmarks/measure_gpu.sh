#!/usr/bin/env bash
# All that is measured on a GPU for the committed data and results, in parts that end within ten minutes each, and that
# leave behind what they have if they are cut off. Kernels that were compiled elsewhere, with the same torch and triton,
# spare the GPU the wait: diode compile-ahead fills a folder, `tar -C FOLDER -cJf kernels.tar.xz kernels` packs it.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: measure_gpu.sh PART OUT [KERNELS.tar.xz]...

  truth      every choice of the test problems, near-winners twice         OUT/h200_test.parquet
  training   a sweep of training problems from no kernel at all, how far   OUT/h200_train.parquet, collection_h200.json,
             its labels can be trusted, and the timer beside others        timing_h200.json
  sweep      more training problems, from the kernels that are there      OUT/h200_train.parquet
  compile    whole compiles: what searching costs and ends with            OUT/compile_h200.json
  checks     numbers, statistics and real models, as pytest -m gpu         OUT/gpu_tests_h200.json

SECONDS_OF_PART (default 540) is what a part may take; PYTHON names the interpreter, and OPS the ops of training, as in
OPS=mm,bmm. Run it from the root of a checkout.
EOF
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
mkdir -p -- "$out"
python=${PYTHON:-python3} seconds=${SECONDS_OF_PART:-540} ops=${OPS:-}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
DIODE_CACHE=$(mktemp -d)
export DIODE_CACHE
began=$SECONDS

left() { # seconds that are left of the part, less what the rest of it needs
  echo $((seconds - (SECONDS - began) - ${1:-0}))
}

unpack() {
  for archive in "$@"; do
    tar -C "$DIODE_CACHE" -xJf "$archive"
  done
  echo "$(find "$DIODE_CACHE" -name '*.kernel' | wc -l) kernels are there, after $((SECONDS - began)) s"
}

collect() { # OUTPUT SHAPESET MORE...
  local output=$1 shapeset=$2
  shift 2
  "$python" -m diode.cli collect-shapeset --shapeset "$shapeset" --output "$output" --budget "$(left 20)s" "$@"
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
    "$python" benchmarks/timing.py --output "$out/timing_h200.json"
    ;;
  sweep)
    unpack "$@"
    collect "$out/h200_train.parquet" diode_datasets/h200_train_shapeset.json --choices 12 --share-choices
    ;;
  compile)
    "$python" benchmarks/compile.py --output "$out/compile_h200.json" --seconds "$(left 20)"
    ;;
  checks)
    "$python" benchmarks/gpu_checks.py --output "$out/gpu_tests_h200.json" --seconds "$(left 60)" || failed=true
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
echo "$part took $((SECONDS - began)) s"
ls -l "$out"
! ${failed:-false}
