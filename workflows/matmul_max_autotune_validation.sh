#!/usr/bin/env bash
# Compares a model's first 1 to 50 choices with what max-autotune finds when it tries everything.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=steps.sh
source "$here/steps.sh"

usage() {
  cat <<'EOF'
Usage: matmul_max_autotune_validation.sh --model FILE [OPTION VALUE]...

Measures every choice of problems that the model was not trained on, writes down the fastest of each as max-autotune's
solution, and compares the model's first choices with it. Started again, it goes on where it was stopped.

  --model FILE             a trained model
  --seed N                 decides which problems are drawn: not the training's            43
  --data-dir DIR           the folder for all that is made; it is created                  data
  --shapes N               problems to measure                                             30
  --dataset FILE           a data set to take instead of measuring; or a folder of them    none
  --solution FILE          a solution to compare with instead of the fastest choices       none
  --search-space SPACE     EXHAUSTIVE or DEFAULT: whose choices are measured               EXHAUSTIVE
  --ops, --dtypes, --layouts LIST    what is drawn, as in mm,addmm                         the usual mix
  --max-gflop X            draw no larger problem, as for a CPU                            no limit
  --device DEVICE          cpu, cuda, or cuda:0,1                                          cuda where there is one
  --budget TIME            stop measuring after so long, as in 10m                         none
  --format FORMAT          json, msgpack or parquet                                        parquet
  --python PYTHON          the interpreter that has diode                                  the checkout's, or python3
  --help
EOF
}

seed=43 data_dir=data shapes=30 search_space=EXHAUSTIVE format=parquet
model='' dataset='' solution='' device='' budget='' python=$(default_python "$here")
drawn=()

while (($#)); do
  if [[ $1 == --help ]]; then
    usage
    exit
  fi
  option=$1
  case $option in
    --model | --seed | --data-dir | --shapes | --dataset | --solution | --search-space | --ops | --dtypes | \
      --layouts | --max-gflop | --device | --budget | --format | --python)
      value_of "$option" $# "${2-}"
      ;;
    *) fail "$option: is no option (--help lists them)" ;;
  esac
  value=$2
  shift 2
  case $option in
    --model) model=$value ;;
    --seed) need_seed "$value" && seed=$value ;;
    --data-dir) data_dir=$value ;;
    --shapes) need_count "$option" "$value" && shapes=$value ;;
    --dataset) dataset=$value ;;
    --solution) solution=$value ;;
    --search-space) need_search_space "$value" && search_space=$value ;;
    --ops | --dtypes | --layouts | --max-gflop) drawn+=("$option" "$value") ;;
    --device) need_device "$value" && device=$value ;;
    --budget) budget=$value ;;
    --format) need_format "$value" && format=$value ;;
    --python) python=$value ;;
  esac
done
need_python "$python"
[[ -n $model ]] || fail "--model FILE: which model is to be compared? (--help explains)"
[[ -f $model ]] || fail "--model $model: is not there"
[[ -z $dataset || -e $dataset ]] || fail "--dataset $dataset: is not there"
[[ -z $solution || -f $solution ]] || fail "--solution $solution: is not there"
mkdir -p -- "$data_dir" || fail "--data-dir $data_dir: cannot be a folder"

diode() {
  "$python" "$here/matmul_toolkit.py" --seed "$seed" "$@"
}

if [[ -n $dataset ]]; then
  say "1/3 every choice of each problem: as $dataset has it"
else
  dataset=$data_dir/seed_${seed}_validation.$format
  say "1/3 every choice of $shapes problems"
  if stands "$dataset"; then
    echo "$dataset stands; remove it to measure again"
  else
    diode create-validation --output "$dataset" --num-shapes "$shapes" --search-space "$search_space" \
      "${drawn[@]}" ${device:+--device "$device"} ${budget:+--budget "$budget"}
  fi
fi

if [[ -n $solution ]]; then
  say "2/3 the solution to compare with: $solution"
else
  solution=$data_dir/max_autotune_solution.json
  say "2/3 max-autotune's solution: the fastest choice of each problem"
  diode dataset solution "$dataset" --output "$solution" --name max-autotune
fi

say "3/3 comparison"
diode validate-max-autotune --model "$model" --dataset "$dataset" --max-autotune-solution "$solution" \
  --output "$data_dir/model_performance_analysis_by_op.json"
