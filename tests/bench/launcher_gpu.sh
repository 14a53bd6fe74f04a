#!/usr/bin/env bash
# Checks cxxrun on a machine with NVIDIA GPUs and measures its start beside torchrun's: launcher_gpu.sh FOLDER_OF_CXXRUN
#
# Needs nvidia-smi, and a python3 with torch. Prints what it found and PASS, or the first check that failed.
set -euo pipefail
cxxrun=$1/cxxrun
here=$(cd "$(dirname "$0")" && pwd)

check() { # NAME EXPECTED ACTUAL
  if [[ $2 != "$3" ]]; then
    printf 'FAIL %s\nexpected: %s\nfound:    %s\n' "$1" "$2" "$3"
    exit 1
  fi
  printf 'ok   %s: %s\n' "$1" "$(tr '\n' ' ' <<<"$2" | cut -c1-150)"
}

mapfile -t uuids < <(nvidia-smi --query-gpu=uuid --format=csv,noheader)
mapfile -t buses < <(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr 'A-F' 'a-f' | sed 's/^0000//')
gpus=${#uuids[@]}
unset CUDA_VISIBLE_DEVICES

ranks() { "$cxxrun" "$@" sh -c 'echo $RANK $WORLD_SIZE' | sort -n | tail -1; }
check "ranks for --nproc_per_node=gpu" "$((gpus - 1)) $gpus" "$(ranks --nproc_per_node=gpu)"
check "ranks for auto" "$((gpus - 1)) $gpus" "$(ranks --nproc_per_node=auto)"
check "ranks for one UUID" "0 1" "$(CUDA_VISIBLE_DEVICES=${uuids[-1]} ranks --nproc_per_node=gpu)"
warning=$("$cxxrun" --nproc_per_node=$((gpus + 1)) true 2>&1)
check "a warning for more ranks than GPUs" yes "$([[ $warning == *"--nproc-per-node=$((gpus + 1))"*"$gpus GPU"* ]] && echo yes || echo "$warning")"

see='import os, torch; print(os.environ["RANK"], torch.cuda.device_count(), "GPU-" + str(torch.cuda.get_device_properties(0).uuid))'
expected=$(for ((rank = 0; rank < gpus; ++rank)); do echo "$rank 1 ${uuids[rank]}"; done)
check "a GPU each with --virtual-local-rank" "$expected" \
  "$("$cxxrun" --nproc_per_node=gpu --no-python --virtual-local-rank python3 -c "$see" 2>/dev/null | sort -n)"

reduce='import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
total = torch.ones(1, device="cuda")
dist.all_reduce(total)
print(int(total.item()))
dist.destroy_process_group()'
check "a sum over all GPUs by NCCL" "$(for ((rank = 0; rank < gpus; ++rank)); do echo "$gpus"; done)" \
  "$("$cxxrun" --nproc_per_node=gpu --no-python python3 -c "$reduce" 2>/dev/null)"

allowed=$(awk '/Cpus_allowed_list/ {print $2}' /proc/self/status)
for ((rank = 0; rank < gpus; ++rank)); do
  node=$(cat "/sys/bus/pci/devices/${buses[rank]}/numa_node")
  cpus=$(cat "/sys/devices/system/node/node$((node < 0 ? 0 : node))/cpulist")
  bound=$("$cxxrun" --nproc_per_node=gpu --numa-binding=node sh -c '[ $RANK = '"$rank"' ] && awk "/Cpus_allowed_list/ {print \$2}" /proc/self/status || :')
  echo "     rank $rank: GPU ${buses[rank]} on node $node with CPUs $cpus; allowed $allowed; bound to $bound"
  [[ -n $bound ]] || { echo "FAIL no binding"; exit 1; }
done

nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c
python3 -c 'import torch; print("torch", torch.__version__)'
python3 "$here/launch_time.py" "$cxxrun" "$(command -v torchrun)" "$gpus" 8
echo PASS
