"""Training pictures as they will be judged: clean, blurred, noisy, and as the autoencoder decodes them; patch
labels.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from scipy import ndimage

from rewards.shapes.build.common import to_tensor
from rewards.shapes.language import describe
from rewards.shapes.render import render_array
from rewards.shapes.scenes import BACKGROUNDS, COLORS, IMAGE_SIZE, SHAPES, Scene, sample_scene

PATCH = 4
PATCHES = IMAGE_SIZE // PATCH
PATCH_COLORS, PATCH_SHAPES = [*COLORS, *BACKGROUNDS], [*SHAPES, "none"]


def train_scene(rng: random.Random, split: str = "train") -> Scene:
    """A scene whose meaning belongs to the split."""
    while True:
        scene = sample_scene(rng)
        if describe(scene).split() == split:
            return scene


def patch_labels(scenes: list[Scene]) -> torch.Tensor:
    """Colour and shape of each 4 x 4 patch, ``(N, 64, 2)`` indices into ``PATCH_COLORS`` and ``PATCH_SHAPES``."""
    centres = (np.arange(PATCHES) + 0.5) * PATCH
    labels = np.zeros((len(scenes), PATCHES, PATCHES, 2), np.int64)
    for row, scene in zip(labels, scenes):
        row[..., 0], row[..., 1] = PATCH_COLORS.index(scene.background), PATCH_SHAPES.index("none")
        for s in scene.shapes:
            inside = np.maximum(abs(centres[None] - s.x), abs(centres[:, None] - s.y)) < s.radius + 0.5
            row[inside] = PATCH_COLORS.index(s.color), PATCH_SHAPES.index(s.shape)
    return torch.from_numpy(labels.reshape(len(scenes), -1, 2))


def blurred(pictures: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur of ``sigma`` pixels."""
    return ndimage.gaussian_filter(pictures, (0, sigma, sigma, 0))


@torch.no_grad()
def decoded(vae: AutoencoderKL, pictures: np.ndarray, latent_noise: float, generator: torch.Generator) -> np.ndarray:
    """Through the autoencoder, with noise of 0 to ``latent_noise`` on the latents."""
    out = []
    for part in to_tensor(pictures).split(50):
        latents = vae.encode(part).latent_dist.mean
        scale = torch.rand(len(latents), 1, 1, 1, generator=generator) * latent_noise
        latents = latents + scale * torch.randn(latents.shape, generator=generator)
        out.append(vae.decode(latents).sample.clamp(-1.1, 1.1))
    return torch.cat(out).permute(0, 2, 3, 1).numpy()


def noise_pictures(count: int, generator: np.random.Generator) -> np.ndarray:
    """Pictures ``(count, 32, 32, 3)`` in [-1, 1] that show nothing: uniform or normal noise in grains of 1 to 8 pixels.

    Example:
        >>> noise_pictures(2, np.random.default_rng(0)).shape
        (2, 32, 32, 3)
    """
    out = np.empty((count, IMAGE_SIZE, IMAGE_SIZE, 3), np.float32)
    for picture in out:
        grain = int(generator.choice((1, 1, 1, 2, 4, 8)))
        size = (IMAGE_SIZE // grain, IMAGE_SIZE // grain, 3)
        if generator.random() < 0.5:
            values = generator.uniform(-1, 1, size)
        else:
            values = generator.normal(generator.uniform(-0.5, 0.5), generator.uniform(0.2, 0.8), size).clip(-1, 1)
        picture[:] = values.repeat(grain, 0).repeat(grain, 1)
    return out


class PictureSource:
    """Batches of scenes with their pictures: half of each batch clean, half blurred or decoded; faint noise on all."""

    def __init__(self, seed: int, vae_path: Path | None, pool_size: int = 1500) -> None:
        self.rng, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.pool: list[Scene] = []
        if vae_path is not None:
            vae = AutoencoderKL.from_pretrained(vae_path).eval()
            self.pool = [train_scene(self.rng) for _ in range(pool_size)]
            self.pool_pictures = decoded(vae, render_array(self.pool), 0.4, torch.Generator().manual_seed(seed))

    def __call__(self, count: int) -> tuple[list[Scene], np.ndarray]:
        """``count`` scenes and float32 pictures ``(count, 32, 32, 3)`` in about [-1, 1]."""
        scenes = [train_scene(self.rng) for _ in range(count)]
        pictures = render_array(scenes)
        half = count // 2
        if self.pool:
            chosen = self.noise.integers(0, len(self.pool), half)
            scenes[:half] = [self.pool[i] for i in chosen]
            pictures[:half] = self.pool_pictures[chosen]
        else:
            pictures[:half] = blurred(pictures[:half], self.noise.uniform(0.2, 0.9))
        scale = self.noise.uniform(0, 0.08, (count, 1, 1, 1)).astype(np.float32)
        return scenes, pictures + self.noise.normal(0, 1, pictures.shape).astype(np.float32) * scale
