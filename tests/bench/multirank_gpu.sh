#!/usr/bin/env bash
# multirank_gpu.sh BIN_DIR: runs the tests of several ranks on 2 GPUs (where there are, on 4 and 8 too) with NCCL: DDP itself, every policy, the
# same training on 1 and more ranks, resuming, signals and restarts. On a machine of one GPU 2, 4 and 8 ranks share it, as hosts of their own
# to NCCL, for the cases that need not start their ranks themselves. BIN_DIR holds cxxrun, vla_worker, ddp_ranks, block_ranks,
# step_agreement_ranks and training_test. Prints a table in Markdown, and what a failed case printed. Exits with 1 when one failed, with 77 where
# there is no GPU.
set -uo pipefail
CXXRUN_TEST_BIN_DIR=$(realpath "$1")
export CXXRUN_TEST_BIN_DIR CXXRUN_TEST_DEVICE=cuda NCCL_NVLS_ENABLE=0 OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gpus=$(nvidia-smi -L | wc -l)
((gpus)) || { echo "a GPU is needed" >&2; exit 77; }
failed=0

# launch RANKS PROGRAM
launch() {
  local ranks=$1 program=$2 port=$((20000 + RANDOM % 10000)) node
  if ((gpus > 1)); then
    "$CXXRUN_TEST_BIN_DIR/cxxrun" --nproc_per_node="$ranks" --shutdown-timeout=5 "$program" --gtest_color=no
    return
  fi
  for ((node = 0; node < ranks; ++node)); do
    NCCL_HOSTID=host$node NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo "$CXXRUN_TEST_BIN_DIR/cxxrun" --nnodes="$ranks" --node_rank=$node \
      --master_addr=127.0.0.1 --master_port=$port --nproc_per_node=1 --shutdown-timeout=5 "$program" --gtest_color=no &
  done
  wait
}

# result NAME RANKS STATUS LOG
result() {
  echo "| $1 | $2 | $3 |"
  [[ $3 == PASS ]] && return
  failed=1
  tail -n 60 "$4"
}

printf '%s GPUs: %s\n\n| Case | Ranks | Result |\n|---|---|---|\n' "$gpus" "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort -u | paste -sd, -)"
# All ranks run all cases together: a case has passed when each of them says so.
for ranks in 2 4 8; do
  ((gpus == 1 || gpus >= ranks)) || continue
  for program in ddp_ranks block_ranks step_agreement_ranks; do
    launch $ranks "$CXXRUN_TEST_BIN_DIR/$program" >"$work/$program" 2>&1
    for name in $("$CXXRUN_TEST_BIN_DIR/$program" --gtest_list_tests 2>/dev/null | awk '/^[A-Za-z]/ {suite = $1} /^ / {print suite $1}'); do
      passed=$(grep -cE "^\[       OK \] $name( |,)" "$work/$program")
      [[ $passed == "$ranks" ]] && result "$name" $ranks PASS || result "$name" $ranks FAIL "$work/$program"
    done
  done
done
((gpus > 1)) || exit $failed

# Each case starts its own ranks. Those of three and more ranks need as many GPUs; what runs on the CPU anywhere is left out.
left_out=Resume.AtEveryStepOnAnotherWorldSizeGivesTheSameSamplesRatesAndLosses
((gpus >= 4)) || left_out+=:Resume.ContinuesAtTheExactSampleOnAnotherWorldSize:SameTraining.ThreeRanksSplitEightRows:SameTraining.FourRanksSplitThreeRows
((gpus >= 8)) || left_out+=':*EightRanks*'
for name in $("$CXXRUN_TEST_BIN_DIR/training_test" --gtest_list_tests --gtest_filter="SameTraining.*:Resume.*:StepGraph.*SeveralRanks*-$left_out" |
  awk '/^[A-Za-z]/ {suite = $1} /^ / {print suite $1}'); do
  timeout 300 "$CXXRUN_TEST_BIN_DIR/training_test" --gtest_filter="$name" --gtest_color=no >"$work/case" 2>&1 && status=PASS || status=FAIL
  result "$name" "1 to $((gpus < 4 ? 2 : gpus < 8 ? 4 : 8))" "$status" "$work/case"
done
exit $failed
