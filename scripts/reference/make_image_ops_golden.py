"""Golden values of image operations: torch.nn.functional.interpolate and torchvision.transforms.v2.functional (torch 2.11.0,
torchvision 0.26.0), and LeRobot 0.6.1's two ways to resize with padding.

    ~/.cache/cxxrun/reference/bin/python scripts/reference/make_image_ops_golden.py tests/data/goldens/image_ops.safetensors

One row of "factor/<name>" is an image's factor; "affine" has rows [degrees, shift_x, shift_y].
"""
import sys

import torch
from lerobot.policies.common.vla_utils import resize_with_pad, resize_with_pad_torch
from safetensors.torch import save_file
from torchvision.transforms.v2 import functional as F

torch.manual_seed(7)
images = torch.rand(4, 3, 12, 17)
images[1] = images[1].round(decimals=1)  # ties between channels
images[2, :, :6] = images[2, :1, :6]  # grey
images[3] = (images[3] > 0.5).float()  # black, white and pure colours
golden = {"images": images, "images_uint8": (images * 255).round().to(torch.uint8)}

for height, width in [(8, 20), (24, 9), (6, 5), (31, 40)]:
    for antialias in (False, True):
        name = f"resize/{height}x{width}{'/antialias' if antialias else ''}"
        golden[name] = torch.nn.functional.interpolate(images, (height, width), mode="bilinear", align_corners=False, antialias=antialias)
        golden[f"uint8/{name}"] = F.resize(golden["images_uint8"], [height, width], antialias=antialias)
for height, width in [(16, 16), (30, 12), (9, 9), (12, 17)]:
    golden[f"pad/left_top/{height}x{width}"] = resize_with_pad(images, height, width, pad_value=-1.0)
    golden[f"pad/centre/{height}x{width}"] = resize_with_pad_torch(images, height, width)
for height, width in [(12, 17), (11, 14), (9, 16), (5, 12), (7, 10)]:
    golden[f"centre_crop/{height}x{width}"] = F.center_crop(images, [height, width])

factors = {
    "brightness": [0.0, 0.8, 1.0, 1.7],
    "contrast": [0.0, 0.7, 1.0, 1.9],
    "saturation": [0.0, 0.5, 1.0, 1.5],
    "hue": [-0.5, -0.05, 0.31, 0.04],
    "sharpness": [0.0, 0.5, 1.0, 2.5],
}
for name, values in factors.items():
    adjust = getattr(F, f"adjust_{name}")
    golden[f"factor/{name}"] = torch.tensor(values)
    golden[f"adjust/{name}"] = torch.stack([adjust(image, value) for image, value in zip(images, values)])

moves = [(0.0, 0, 0), (-4.3, 1, -2), (5.1, -1, 0), (33.0, 3, 2)]
golden["factor/affine"] = torch.tensor(moves)
golden["adjust/affine"] = torch.stack(
    [F.affine(image, angle=a, translate=[x, y], scale=1.0, shear=[0.0, 0.0]) for image, (a, x, y) in zip(images, moves)]
)

save_file({name: tensor.clone().contiguous() for name, tensor in golden.items()}, sys.argv[1])
