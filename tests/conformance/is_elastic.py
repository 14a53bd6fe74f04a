import torch.distributed

print("elastic:", torch.distributed.is_torchelastic_launched())
