"""What a policy is: a pipeline of diffusers whose denoising network is trained and whose other parts are frozen.

The network is called in exactly the same way for sampling and for training, so that the importance ratio starts at 1.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from diffusers.training_utils import cast_training_params
from torch import Tensor, nn

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.policy.adapter import add_adapter, load_adapter
from rewards.trainers.diffusion.steppers.base import Stepper

PIXELS_AT_ONCE = 2**20
"""Pixels that the autoencoder decodes at a time: in float32 it needs about 3 GB for four pictures of 512 x 512."""

DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""`mixed_precision` -> what the frozen parts are kept in."""


@dataclass
class Conditioning:
    """What the network is conditioned on, a row a sample.

    Attributes:
        embeds: Prompt embeddings, (N, L, D).
        negative_embeds: The negative prompt's, (N, L, D); None without guidance.
        pooled: Pooled prompt embeddings (SDXL, SD3), (N, P); None elsewhere.
        negative_pooled: The negative prompt's; None without guidance or elsewhere.
        mask: Which of the L tokens a prompt has, (N, L), where prompts keep their lengths (Qwen-Image, Z-Image).
        negative_mask: The negative prompt's; None without guidance or elsewhere.
    """

    embeds: Tensor
    negative_embeds: Tensor | None = None
    pooled: Tensor | None = None
    negative_pooled: Tensor | None = None
    mask: Tensor | None = None
    negative_mask: Tensor | None = None

    def of(self, prompts: Sequence[str], unique: Sequence[str]) -> Conditioning:
        """The rows of some prompts, where a row stands for each different one."""
        return self.rows(torch.tensor([unique.index(prompt) for prompt in prompts], device=self.embeds.device))

    def rows(self, index: Tensor) -> Conditioning:
        """The conditioning of the samples `index`, (M,) int64."""
        return Conditioning(*(None if t is None else t[index] for t in self._tensors()))  # type: ignore[arg-type]

    @staticmethod
    def concatenate(parts: Sequence[Conditioning]) -> Conditioning:
        """The rows of several conditionings, one after the other."""
        columns = zip(*(part._tensors() for part in parts))
        return Conditioning(*(None if c[0] is None else _as_long_as_the_longest(c) for c in columns))  # type: ignore[arg-type]

    def guided(self) -> tuple[Tensor, Tensor | None]:
        """Embeddings and pooled embeddings of both halves of a guided call, the negative prompt's first."""
        if self.negative_embeds is None:
            raise ValueError("encoded without guidance")
        pooled = None
        if self.pooled is not None and self.negative_pooled is not None:
            pooled = torch.cat([self.negative_pooled, self.pooled])
        return torch.cat([self.negative_embeds, self.embeds]), pooled

    def _tensors(self) -> tuple[Tensor | None, ...]:
        first = (self.embeds, self.negative_embeds, self.pooled, self.negative_pooled)
        return (*first, self.mask, self.negative_mask)


def _as_long_as_the_longest(parts: Sequence[Tensor]) -> Tensor:
    longest = max(part.shape[1] for part in parts)
    after = [0, 0] * (parts[0].ndim - 2)
    return torch.cat([torch.nn.functional.pad(part, [*after, 0, longest - part.shape[1]]) for part in parts])


class Policy(ABC):
    """A pipeline with a trainable network. Subclasses say how their architecture encodes, predicts and saves.

    Args:
        pipeline: The pipeline; it is changed in place and can be used as usual afterwards.
        network: Its denoising network.
        args: The settings.
        device: Where the pipeline lives.
        keep_base: Keep a copy of the network as it was, where the whole of it is trained.

    Raises:
        InputError: The network already carries a LoRA, or adapter targets that name no layer.

    Attributes:
        rows_guided: Rows of the network's input for a picture under guidance: with the prompt and without.
    """

    rows_guided: ClassVar[int] = 2

    def __init__(
        self, pipeline: Any, network: Any, args: DiffusionConfig, device: torch.device, keep_base: bool
    ) -> None:
        self.pipeline = pipeline
        self.network = network
        self.args = args
        self.device = device
        self.dtype = DTYPES[args.mixed_precision]
        self._base: Any = None
        self._on_base = False
        self._place()
        if args.use_lora:
            add_adapter(network, args)
            cast_training_params(network, dtype=torch.float32)
        else:
            if keep_base:
                self._base = copy.deepcopy(network)
            network.float().requires_grad_(True)
        if args.gradient_checkpointing:
            network.enable_gradient_checkpointing()
        self.latent_shape  # noqa: B018 - a resolution that cannot be drawn is refused now

    def _place(self) -> None:
        for name, module in self.pipeline.components.items():
            if isinstance(module, nn.Module):
                module.requires_grad_(False).eval()
                # float16 overflows in the decoder of some autoencoders (black pictures), so it stays in float32.
                dtype = torch.float32 if name == "vae" else self.dtype
                module.to(self.device)
                if module.dtype != dtype:
                    module.to(dtype)
        # About a fifth faster convolutions on CPUs and tensor cores, with the same values.
        for module in (self.network, self.pipeline.vae):
            if all(parameter.ndim < 5 for parameter in module.parameters()):  # no videos
                module.to(memory_format=torch.channels_last)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters, float32, in a fixed order."""
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    @property
    @abstractmethod
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""

    def latent_side(self, usual: int) -> int:
        """Side of the latents that make pictures of `resolution` pixels; without one the pipeline's usual side.

        Raises:
            InputError: No whole number of 2 x 2 patches of latents makes such pictures.
        """
        if self.args.resolution is None:
            return usual
        side, rest = divmod(self.args.resolution, self.pipeline.vae_scale_factor)
        if rest or side % 2:
            step = 2 * self.pipeline.vae_scale_factor
            raise InputError(f"resolution must be a multiple of {step} for this pipeline, got {self.args.resolution}")
        return side

    @abstractmethod
    def stepper(self, num_steps: int, noise: float) -> Stepper:
        """A sampler of `num_steps` steps for this pipeline's scheduler.

        Args:
            num_steps: T.
            noise: How random the steps are; 0 for the pipeline's own deterministic sampler.
        """

    @abstractmethod
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """Encode prompts, each different one once.

        Args:
            prompts: N texts.
            guidance_scale: Above 1 the negative prompt is encoded as well.

        Returns:
            N rows.
        """

    def _call(self, latents: Tensor, timesteps: Tensor, embeds: Tensor, pooled: Tensor | None) -> Tensor:
        """The network's output for rows of one kind (with the prompt, or without): what :meth:`predict` is made of."""
        raise NotImplementedError

    def predict(self, latents: Tensor, timesteps: Tensor, conditioning: Conditioning, guidance_scale: float) -> Tensor:
        """The network's prediction, guided where the conditioning holds a negative prompt.

        Args:
            latents: (N, C, H, W) float32.
            timesteps: (N,) on any device.
            conditioning: N rows.
            guidance_scale: Of classifier-free guidance.

        Returns:
            (N, C, H, W).
        """
        timesteps = timesteps.to(self.device)
        with self._autocast():
            if conditioning.negative_embeds is None:
                return self._call(latents, timesteps, conditioning.embeds, conditioning.pooled)
            both = self._call(torch.cat([latents] * 2), torch.cat([timesteps] * 2), *conditioning.guided())
            without, with_prompt = both.float().chunk(2)
            return without + guidance_scale * (with_prompt - without)

    @property
    def active(self) -> Any:
        """The network that predicts now: the trained one, or within :meth:`base_model` the base."""
        return self._base if self._on_base and self._base is not None else self.network

    @contextmanager
    def base_model(self) -> Iterator[None]:
        """Within this block predictions are those of the model as it was before training.

        Raises:
            InputError: The whole network is trained and no copy was kept.
        """
        if not self.args.use_lora and self._base is None:
            raise InputError("the base model is only kept when train_kl_coefficient is set")
        self._on_base = True
        if self.args.use_lora:
            self.network.disable_adapters()
        try:
            yield
        finally:
            self._on_base = False
            if self.args.use_lora:
                self.network.enable_adapters()

    @contextmanager
    def holding(self, values: Sequence[Tensor]) -> Iterator[None]:
        """Within this block the trained parameters hold other values (an average, an older policy)."""
        own = [parameter.detach() for parameter in self.parameters]
        kept = [parameter.clone() for parameter in own]
        torch._foreach_copy_(own, list(values))
        try:
            yield
        finally:
            torch._foreach_copy_(own, kept)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def decode(self, latents: Tensor) -> Tensor:
        """Latents (N, C, H, W) to pictures (N, 3, H, W), float32 in [0, 1] on the policy's device, with the gradient
        where one is kept; a broken picture stays NaN."""
        vae = self.pipeline.vae
        latents = latents.float()
        mean, std = (getattr(vae.config, name, None) for name in ("latents_mean", "latents_std"))
        if mean is not None and std is not None:
            mean, std = (torch.tensor(values, device=latents.device).view(1, -1, 1, 1) for values in (mean, std))
            latents = latents * std / vae.config.scaling_factor + mean
        else:
            latents = latents / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0.0)
        return (vae.decode(latents).sample / 2 + 0.5).clamp(0, 1)

    @torch.no_grad()
    def pictures(self, latents: Tensor) -> Tensor:
        """:meth:`decode` without a gradient, :data:`PIXELS_AT_ONCE` at a time; pictures stay on the policy's device."""
        pixels = math.prod(latents.shape[2:]) * self.pipeline.vae_scale_factor**2
        return torch.cat([self.decode(part) for part in latents.split(max(1, PIXELS_AT_ONCE // pixels))])

    @abstractmethod
    def _save_adapter(self, folder: Path) -> None:
        """Write the adapter for `pipeline.load_lora_weights(folder)`."""

    @property
    @abstractmethod
    def network_name(self) -> str:
        """The network's name among the pipeline's components: `unet` or `transformer`."""

    def save(self, folder: str | Path) -> None:
        """Write the adapter for `pipeline.load_lora_weights(folder)`, or the whole network (`from_pretrained`)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.args.use_lora:
            self._save_adapter(folder)
        else:
            self.network.save_pretrained(folder / self.network_name, safe_serialization=True)

    def load(self, folder: str | Path) -> None:
        """Take over the weights that :meth:`save` wrote, bit by bit.

        Raises:
            InputError: The file does not fit this model.
        """
        folder = Path(folder)
        if self.args.use_lora:
            load_adapter(self.network, folder, prefix=f"{self.network_name}.")
            cast_training_params(self.network, dtype=torch.float32)
        else:
            loaded = type(self.network).from_pretrained(folder / self.network_name)
            self.network.load_state_dict(loaded.state_dict())
