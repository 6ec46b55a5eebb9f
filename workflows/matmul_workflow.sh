#!/usr/bin/env bash
# Measures, trains, and compares with what an exhaustive search finds.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=steps.sh
source "$here/steps.sh"

usage() {
  cat <<'EOF'
Usage: matmul_workflow.sh [OPTION VALUE]...

Measures training data and a validation set on this machine, trains a model on the one, judges it by the other, and
compares its choices with the fastest of all that were measured. Started again, it goes on where it was stopped.

  --seed N                 decides which problems are drawn; validation takes N + 1        42
  --data-dir DIR           the folder for all that is made; it is created                  data
  --train-shapes N         problems to train on                                            100
  --validation-shapes N    problems to judge by                                            30
  --search-space SPACE     EXHAUSTIVE or DEFAULT: whose choices are measured               EXHAUSTIVE
  --choices N              measure so many choices of each training problem, by lot        all
  --ops, --dtypes, --layouts LIST    what is drawn, as in mm,addmm                         the usual mix
  --max-gflop X            draw no larger problem, as for a CPU                            no limit
  --device DEVICE          cpu, cuda, or cuda:0,1                                          cuda where there is one
  --budget TIME            for each of the two collections, as in 10m                      none
  --model FILE             the model to make: .safetensors or .pt                          DIR/matmul_model.safetensors
  --model-type TYPE        deep or base                                                    deep
  --epochs N               epochs of the training                                          what ranks best
  --format FORMAT          json, msgpack or parquet                                        parquet
  --python PYTHON          the interpreter that has diode                                  the checkout's, or python3
  --help
EOF
}

seed=42 data_dir=data train_shapes=100 validation_shapes=30 search_space=EXHAUSTIVE format=parquet
choices='' device='' budget='' model='' model_type=deep epochs='' python=$(default_python "$here")
drawn=()

while (($#)); do
  if [[ $1 == --help ]]; then
    usage
    exit
  fi
  option=$1
  case $option in
    --seed | --data-dir | --train-shapes | --validation-shapes | --search-space | --choices | --ops | --dtypes | \
      --layouts | --max-gflop | --device | --budget | --model | --model-type | --epochs | --format | --python)
      value_of "$option" $# "${2-}"
      ;;
    *) fail "$option: is no option (--help lists them)" ;;
  esac
  value=$2
  shift 2
  case $option in
    --seed) need_seed "$value" && seed=$value ;;
    --data-dir) data_dir=$value ;;
    --train-shapes) need_count "$option" "$value" && train_shapes=$value ;;
    --validation-shapes) need_count "$option" "$value" && validation_shapes=$value ;;
    --search-space) need_search_space "$value" && search_space=$value ;;
    --choices) need_count "$option" "$value" && choices=$value ;;
    --ops | --dtypes | --layouts | --max-gflop) drawn+=("$option" "$value") ;;
    --device) need_device "$value" && device=$value ;;
    --budget) budget=$value ;;
    --model) model=$value ;;
    --model-type) model_type=$value ;;
    --epochs) need_count "$option" "$value" && epochs=$value ;;
    --format) need_format "$value" && format=$value ;;
    --python) python=$value ;;
  esac
done
need_python "$python"
model=${model:-$data_dir/matmul_model.safetensors}
[[ $model == *.safetensors || $model == *.pt ]] || fail "--model $model: name it .safetensors or .pt"
[[ $model_type == deep || $model_type == base ]] || fail "--model-type $model_type: use deep or base"
mkdir -p -- "$data_dir" || fail "--data-dir $data_dir: cannot be a folder"

diode() {
  "$python" "$here/matmul_toolkit.py" --seed "$seed" "$@"
}

measured=(--search-space "$search_space" "${drawn[@]}")
[[ -z $device ]] || measured+=(--device "$device")
[[ -z $budget ]] || measured+=(--budget "$budget")
training=$data_dir/seed_${seed}_training.$format
validation=$data_dir/seed_$((seed + 1))_validation.$format
solution=$data_dir/seed_$((seed + 1))_max_autotune.json
analysis=$data_dir/model_performance_analysis_by_op.json

say "1/5 training data: $train_shapes problems"
if stands "$training"; then
  echo "$training stands; remove it to measure again"
else
  diode collect --output "$training" --num-shapes "$train_shapes" ${choices:+--choices "$choices"} "${measured[@]}"
fi

say "2/5 training"
diode train --dataset "$training" --model "$model" --model-type "$model_type" ${epochs:+--num-epochs "$epochs"}

say "3/5 validation set: $validation_shapes problems"
if stands "$validation"; then
  echo "$validation stands; remove it to measure again"
else
  # The last --seed counts: other problems than those of the training.
  diode --seed "$((seed + 1))" create-validation --output "$validation" --num-shapes "$validation_shapes" \
    "${measured[@]}"
fi

say "4/5 validation of the model"
diode validate-model --model "$model" --dataset "$validation"

say "5/5 comparison with max-autotune"
diode dataset solution "$validation" --output "$solution" --name max-autotune
diode validate-max-autotune --model "$model" --dataset "$validation" --max-autotune-solution "$solution" \
  --output "$analysis"
