#!/usr/bin/env bash
# scripts/convert_checkpoint.py on files that torch.save wrote.
source "$(dirname "$0")/check.sh"
python=${CXXRUN_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/cxxrun}/venv/bin/python
if [[ ! -x $python ]]; then
  echo "skipped: no PyTorch in $python"
  exit 77
fi
export PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
convert() { "$python" "$root/scripts/convert_checkpoint.py" "$@"; }

# torch_save FILE EXPRESSION, in which w is a tensor float32 [2, 3] of 0..5.
torch_save() {
  "$python" -c "import argparse, torch; w = torch.arange(6.).reshape(2, 3); torch.save($2, '$1')"
}

# The header of a .safetensors file, and its bytes in hexadecimal.
header_of() { "$python" -c "import struct; d = open('$1', 'rb').read(); print(d[8:8 + struct.unpack('<Q', d[:8])[0]].decode().strip())"; }
data_of() { "$python" -c "import struct; d = open('$1', 'rb').read(); print(d[8 + struct.unpack('<Q', d[:8])[0]:].hex())"; }

test_weights_are_found_under_the_usual_keys_and_stored_byte_for_byte() {
  torch_save a.pth '{"epoch": 3, "model": {"module.a": w.half(), "module.t": w.t().half()}, "ema": {"a": w}}'
  output=$(convert a.pth a.safetensors --strip-prefix module.)
  expect_contains "weights are under 'model' (also there: ema" "$output"
  expect_contains "'module.' removed from 2 of 2 names" "$output"
  expect_contains "2 tensors with 12 numbers" "$output"
  expect_equal '{"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"t":{"dtype":"F16","shape":[3,2],"data_offsets":[12,24]}}' \
    "$(header_of a.safetensors)"
  expect_equal 0000003c004000420044004500000042003c004400400045 "$(data_of a.safetensors)"
  convert a.pth ema.safetensors --key ema
  expect_contains '"F32","shape":[2,3]' "$(header_of ema.safetensors)"
}

test_shared_and_foreign_entries_are_named() {
  torch_save a.pth '{"a": w, "same": w, "part": w[0], "note": "text"}'
  output=$(convert a.pth a.safetensors)
  expect_contains "2 tensors share memory with others" "$output"
  expect_contains "left out, no tensors: note" "$output"
  expect_contains "3 tensors with 15 numbers" "$output"
}

test_statistics_and_placeholders_of_diffusion_policy_are_left_out() {
  torch_save a.pth '{"model.a": w, "normalizer.params_dict.action.scale": w[0].clone(), "obs_encoder._dummy_variable": w[:0].clone()}'
  output=$(convert a.pth a.safetensors)
  expect_contains "left out, no weights: 2 tensors (normalizer.params_dict.action.scale" "$output"
  expect_contains "1 tensors with 6 numbers" "$output"
}

test_files_that_need_code_are_refused_and_the_object_is_named() {
  torch_save a.pth '{"model": {"a": w}, "args": argparse.Namespace(x=1)}'
  expect_failure 1 "it needs the Python object argparse.Namespace" convert a.pth a.safetensors
  [[ ! -e a.safetensors ]] || fail "a file was written"
}

test_wrong_files_and_keys_are_clear() {
  torch_save a.pth '{"weights": {"a": w}, "epoch": 1}'
  expect_failure 1 "['epoch', 'weights']: choose one with --key" convert a.pth a.safetensors
  expect_failure 1 "'wights' is no dict of tensors; it has the keys ['epoch', 'weights']" convert a.pth a.safetensors --key wights
  head -c 300 a.pth >cut.pth
  expect_failure 1 "cut.pth was not loaded" convert cut.pth a.safetensors
  echo garbage >b.pth
  expect_failure 1 "no PyTorch checkpoint, or damaged" convert b.pth a.safetensors
  expect_failure 1 "No such file" convert none.pth a.safetensors
}

run_tests
