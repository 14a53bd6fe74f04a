// Precompiled for every target that uses LibTorch: <torch/torch.h> costs 20-45 s a file otherwise.
#include <torch/torch.h>
