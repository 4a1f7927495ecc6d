"""Makes the pictures of this folder, and what Pillow and torchvision make of them.

    python generate.py        needs Pillow, numpy, torch and torchvision

Every picture `x.jpg` has `x.jpg.raw` beside it: the pixels of Pillow's `convert("RGB")`.
`resized.json` lists parts of `photo.jpg` that Pillow cut out and resized, whose pixels lie in
`resized.raw`, one behind the other. `sampling.json` has the mean of what torchvision draws.
"""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps
from torchvision.transforms import CenterCrop, RandomResizedCrop, Resize, ToTensor, Normalize
from torchvision.transforms import functional as F
from torchvision.transforms.functional import InterpolationMode

HERE = Path(__file__).parent


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """Soft colours, sharp edges and some noise: what photographs have."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [127 + 100 * np.sin(x / (7 + 5 * c) + c) * np.cos(y / (9 + 3 * c)) for c in range(3)]
    pixels = np.stack(planes, -1) + np.random.default_rng(seed).normal(0, 4, (height, width, 3))
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.rectangle([width // 5, height // 4, width // 2, height // 2], outline=(255, 0, 0))
    draw.line([0, height - 1, width - 1, 0], fill=(255, 255, 255))
    draw.ellipse([width // 2, height // 3, width - 4, height - 4], fill=(10, 40, 200))
    return image


def keep(name: str, data: bytes) -> None:
    (HERE / name).write_bytes(data)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    (HERE / f"{name}.raw").write_bytes(image.tobytes())


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png16(pixels: np.ndarray, colour: int) -> bytes:
    """A PNG file of 16 bits, which Pillow writes for grey only."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    height, width = pixels.shape[:2]
    rows = pixels.astype(">u2").reshape(height, -1)
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def jpegs(image: Image.Image) -> None:
    keep("grey.jpg", saved(image.convert("L"), "JPEG", quality=85))
    for name, sampling in [("444", 0), ("422", 1), ("420", 2)]:
        keep(f"rgb-{name}.jpg", saved(image, "JPEG", quality=85, subsampling=sampling))
    keep("progressive.jpg", saved(image, "JPEG", quality=85, progressive=True))
    keep("restarts.jpg", saved(image, "JPEG", quality=85, restart_marker_blocks=2))
    keep("rgb-unconverted.jpg", saved(image, "JPEG", quality=85, keep_rgb=True))
    cmyk = saved(image.convert("CMYK"), "JPEG", quality=85)
    keep("cmyk.jpg", cmyk)
    # The same numbers, declared to be luminance and chroma of inks.
    adobe = cmyk.index(b"Adobe") + 11
    keep("ycck.jpg", cmyk[:adobe] + b"\x02" + cmyk[adobe + 1 :])
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = saved(image, "JPEG", quality=85, exif=exif)
        if orientation == 6:
            keep("exif-6.jpg", data)
        (HERE / f"turned-{orientation}.jpg").write_bytes(data)
        turned = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        (HERE / f"turned-{orientation}.jpg.raw").write_bytes(turned.tobytes())


def pngs(image: Image.Image) -> None:
    alpha = image.copy()
    alpha.putalpha(image.convert("L"))
    keep("grey.png", saved(image.convert("L"), "PNG"))
    keep("grey-alpha.png", saved(alpha.convert("LA"), "PNG"))
    keep("bits-1.png", saved(image.convert("1"), "PNG"))
    keep("palette.png", saved(image.quantize(200), "PNG"))
    keep("palette-4.png", saved(image.quantize(13), "PNG", bits=4))
    keep("palette-alpha.png", saved(image.quantize(100), "PNG", transparency=3))
    keep("rgb.png", saved(image, "PNG"))
    keep("rgba.png", saved(alpha, "PNG"))
    wide = np.asarray(image).astype(np.uint16) * 257 // 3
    keep("grey-16.png", png16(wide[..., 0] // 150, 0))
    keep("rgb-16.png", png16(wide, 2))
    opaque = np.concatenate([wide, wide[..., :1]], -1)
    keep("rgba-16.png", png16(opaque, 6))
    keep("grey-alpha-16.png", png16(opaque[..., 2:], 4))


def webps(image: Image.Image) -> None:
    alpha = image.copy()
    alpha.putalpha(image.convert("L"))
    keep("lossy.webp", saved(image, "WEBP", quality=80))
    keep("lossless.webp", saved(image, "WEBP", lossless=True))
    keep("lossy-alpha.webp", saved(alpha, "WEBP", quality=80))
    keep("lossless-alpha.webp", saved(alpha, "WEBP", lossless=True, exact=True))


def resizes() -> None:
    photo = scene(203, 151, seed=1)
    (HERE / "photo.jpg").write_bytes(saved(photo, "JPEG", quality=90))
    photo = Image.open(HERE / "photo.jpg").convert("RGB")
    cases, pixels = [], b""

    def add(case: dict[str, object], result: Image.Image) -> None:
        nonlocal pixels
        cases.append(case | {"width": result.width, "height": result.height})
        pixels += result.tobytes()

    boxes = [(0, 0, 203, 151), (17, 9, 120, 100), (150, 70, 53, 81), (33, 21, 30, 25)]
    filters = ["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
    for name in filters:
        for left, top, width, height in boxes if name in ("bilinear", "bicubic") else boxes[1:2]:
            mode = InterpolationMode(name)
            result = F.resized_crop(photo, top, left, height, width, [40, 48], mode)
            box = [left, top, width, height]
            add({"box": box, "filter": name}, result)
    for size, crop in [(64, 56), (40, 40), (100, 60)]:
        result = CenterCrop(crop)(Resize(size)(photo))
        add({"shorter": size, "centre": crop}, result)
    add({"shorter": 60, "centre": 90}, CenterCrop(90)(Resize(60)(photo)))
    add({"shorter": 50, "longer_max": 60}, Resize(50, max_size=60)(photo))
    (HERE / "resized.json").write_text(json.dumps(cases, indent=0) + "\n")
    (HERE / "resized.raw").write_bytes(pixels)
    small = F.resized_crop(photo, 9, 17, 100, 120, [9, 11])
    numbers = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(ToTensor()(small))
    (HERE / "normalised.pixels").write_bytes(small.tobytes())
    (HERE / "normalised.raw").write_bytes(numbers.numpy().tobytes())


def sampling() -> None:
    """Means and deviations of what RandomResizedCrop draws for a few sizes."""
    torch.manual_seed(0)
    rows = []
    for width, height in [(500, 375), (64, 64), (300, 40)]:
        image = torch.empty(3, height, width)
        scale, ratio = [0.08, 1.0], [3 / 4, 4 / 3]
        drawn = [RandomResizedCrop.get_params(image, scale, ratio) for _ in range(40000)]
        drawn = np.array(drawn, dtype=np.float64)
        row = {"width": width, "height": height}
        rows.append(row | {"mean": drawn.mean(0).tolist(), "std": drawn.std(0).tolist()})
    (HERE / "sampling.json").write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    small = scene(61, 47)
    jpegs(small)
    pngs(small)
    webps(small)
    resizes()
    sampling()
