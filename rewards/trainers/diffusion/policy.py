"""A diffusers text-to-image pipeline as a policy: encode a prompt, take a denoising step, decode, save.

Stable Diffusion 1.x, 2.x and SDXL share everything but the conditioning; both forms are here. The denoising network is
called in exactly the same way for sampling and for training, so that the importance ratio starts at 1.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import DDIMScheduler
from diffusers.loaders import StableDiffusionLoraLoaderMixin, StableDiffusionXLLoraLoaderMixin
from diffusers.loaders.lora_pipeline import LORA_WEIGHT_NAME_SAFE
from diffusers.training_utils import cast_training_params
from peft import LoraConfig, set_peft_model_state_dict
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor

from rewards.errors import InputError
from rewards.trainers.diffusion.config import DDPOConfig
from rewards.trainers.diffusion.ddpo_math import DDIMSchedule, Gaussian, ddim_schedule, ddim_step

ADAPTER = "default"
DTYPES = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class Conditioning:
    """What the network is conditioned on, a row a sample.

    Attributes:
        embeds: Prompt embeddings, (N, L, D).
        negative_embeds: The negative prompt's, (N, L, D); None without guidance.
        pooled: SDXL's pooled prompt embeddings, (N, P); None elsewhere.
        negative_pooled: The negative prompt's; None without guidance or elsewhere.
    """

    embeds: Tensor
    negative_embeds: Tensor | None = None
    pooled: Tensor | None = None
    negative_pooled: Tensor | None = None

    def rows(self, index: Tensor) -> Conditioning:
        """The conditioning of the samples ``index``, (M,) int64."""
        return Conditioning(*(None if t is None else t[index] for t in self._tensors()))  # type: ignore[arg-type]

    @staticmethod
    def concatenate(parts: Sequence[Conditioning]) -> Conditioning:
        """The rows of several conditionings, one after the other."""
        columns = zip(*(part._tensors() for part in parts))
        return Conditioning(*(None if c[0] is None else torch.cat(c) for c in columns))  # type: ignore[arg-type]

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.embeds, self.negative_embeds, self.pooled, self.negative_pooled


@dataclass(frozen=True)
class Sampler:
    """How pictures are drawn: a DDIM schedule and a guidance scale."""

    schedule: DDIMSchedule
    guidance_scale: float


class DiffusionPolicy:
    """The pipeline with a trainable UNet; everything else is frozen.

    Args:
        pipeline: A Stable Diffusion 1.x, 2.x or SDXL pipeline. Its scheduler becomes a ``DDIMScheduler`` of the same
            configuration, and its UNet gets the adapter.
        args: The settings.
        device: Where the pipeline lives.

    Raises:
        InputError: A pipeline that is not latent text-to-image diffusion with a UNet, one that still carries a LoRA, or
            adapter targets that name no layer.
    """

    def __init__(self, pipeline: Any, args: DDPOConfig, device: torch.device) -> None:
        _check_pipeline(pipeline)
        self.pipeline = pipeline
        self.args = args
        self.device = device
        self.is_xl = getattr(pipeline, "text_encoder_2", None) is not None
        self.dtype = DTYPES[args.mixed_precision]
        pipeline.scheduler = as_ddim(pipeline.scheduler)
        self.scheduler = pipeline.scheduler
        self._place()
        self.unet = pipeline.unet
        self._reference: Any = None
        if args.use_lora:
            _add_adapter(self.unet, args)
            cast_training_params(self.unet, dtype=torch.float32)
        else:
            if args.train_kl_coefficient is not None:
                self._reference = copy.deepcopy(self.unet)
            self.unet.float().requires_grad_(True)
        if args.gradient_checkpointing:
            self.unet.enable_gradient_checkpointing()

    def _place(self) -> None:
        for name, module in self.pipeline.components.items():
            if isinstance(module, torch.nn.Module):
                module.requires_grad_(False).eval()
                # float16 overflows in the decoder of some autoencoders (black pictures), so it stays in float32.
                dtype = torch.float32 if name == "vae" else self.dtype
                module.to(self.device)
                if module.dtype != dtype:
                    module.to(dtype)
        # About a fifth faster convolutions on CPUs and tensor cores, with the same values.
        self.pipeline.unet.to(memory_format=torch.channels_last)
        self.pipeline.vae.to(memory_format=torch.channels_last)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trained parameters, float32, in a fixed order."""
        return [parameter for parameter in self.unet.parameters() if parameter.requires_grad]

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one sample's latents."""
        size = self.unet.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        return self.unet.config.in_channels, height, width

    def sampler(self, num_steps: int, eta: float, guidance_scale: float) -> Sampler:
        """A sampler for this pipeline's scheduler (see :func:`rewards.trainers.diffusion.ddpo_math.ddim_schedule`)."""
        return Sampler(ddim_schedule(self.scheduler, num_steps, eta), guidance_scale)

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], guidance_scale: float) -> Conditioning:
        """Encode prompts, each different one once.

        Args:
            prompts: N texts.
            guidance_scale: Above 1 the negative prompt is encoded as well.

        Returns:
            N rows.
        """
        unique = list(dict.fromkeys(prompts))
        guided = guidance_scale > 1
        keywords: dict[str, Any] = {"device": self.device, "num_images_per_prompt": 1}
        if guided and self.args.negative_prompts:  # without one SDXL takes zeros instead of encoding ""
            keywords["negative_prompt"] = [self.args.negative_prompts] * len(unique)
        encoded = self.pipeline.encode_prompt(unique, do_classifier_free_guidance=guided, **keywords)
        embeds, negative, *pooled = encoded
        conditioning = Conditioning(embeds, negative if guided else None)
        if self.is_xl:
            conditioning.pooled, conditioning.negative_pooled = pooled[0], pooled[1] if guided else None
        rows = torch.tensor([unique.index(prompt) for prompt in prompts], device=self.device)
        return conditioning.rows(rows)

    def step(self, latents: Tensor, steps: Tensor, conditioning: Conditioning, sampler: Sampler) -> Gaussian:
        """p(x_{t-1} | x_t, prompt) for N pairs of a sample and a step.

        Args:
            latents: x_t, (N, C, H, W) float32.
            steps: Index of each pair's step in the schedule, (N,) int64 on the CPU, 0 = noisiest.
            conditioning: N rows.
            sampler: Schedule and guidance.

        Returns:
            The Gaussian of each step, float32.
        """
        schedule = sampler.schedule
        timesteps = schedule.timesteps[steps].to(self.device)
        prediction = self._predict(latents, timesteps, conditioning, sampler.guidance_scale)
        return ddim_step(
            prediction,
            latents,
            schedule.alpha[steps],
            schedule.alpha_previous[steps],
            schedule.sigma[steps],
            self.scheduler.config.prediction_type,
            self.scheduler.config.clip_sample_range if self.scheduler.config.clip_sample else None,
        )

    def _predict(self, latents: Tensor, timesteps: Tensor, c: Conditioning, guidance_scale: float) -> Tensor:
        with self._autocast():
            if c.negative_embeds is None:
                return self._unet(latents, timesteps, c.embeds, c.pooled)
            pooled = None
            if c.pooled is not None and c.negative_pooled is not None:
                pooled = torch.cat([c.negative_pooled, c.pooled])
            both = self._unet(
                torch.cat([latents, latents]),
                torch.cat([timesteps, timesteps]),
                torch.cat([c.negative_embeds, c.embeds]),
                pooled,
            )
            without, with_prompt = both.float().chunk(2)
            return without + guidance_scale * (with_prompt - without)

    def _unet(self, latents: Tensor, timesteps: Tensor, embeds: Tensor, pooled: Tensor | None) -> Tensor:
        keywords: dict[str, Any] = {}
        if pooled is not None:
            ids = self._time_ids(embeds.dtype).expand(len(latents), -1)
            keywords["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": ids}
        return self._active_unet(latents.to(embeds.dtype), timesteps, encoder_hidden_states=embeds, **keywords).sample

    def _time_ids(self, dtype: torch.dtype) -> Tensor:
        """SDXL's size conditioning: the full size, uncropped."""
        _, height, width = self.latent_shape
        size = (height * self.pipeline.vae_scale_factor, width * self.pipeline.vae_scale_factor)
        projection = self.pipeline.text_encoder_2.config.projection_dim
        ids = self.pipeline._get_add_time_ids(size, (0, 0), size, dtype=dtype, text_encoder_projection_dim=projection)
        return ids.to(self.device)

    @property
    def _active_unet(self) -> Any:
        return self.unet if not self._on_base or self._reference is None else self._reference

    _on_base = False

    @contextmanager
    def base_model(self) -> Iterator[None]:
        """Within this block :meth:`step` uses the model as it was before training (for the KL divergence).

        Raises:
            InputError: The whole UNet is trained and no copy was kept, because ``train_kl_coefficient`` is None.
        """
        if not self.args.use_lora and self._reference is None:
            raise InputError("the base model is only kept when train_kl_coefficient is set")
        self._on_base = True
        if self.args.use_lora:
            self.unet.disable_adapters()
        try:
            yield
        finally:
            self._on_base = False
            if self.args.use_lora:
                self.unet.enable_adapters()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (N, C, H, W) to pictures (N, 3, H, W), float32 in [0, 1] on the CPU; a broken picture stays NaN."""
        vae = self.pipeline.vae
        latents = latents.float()
        mean, std = (getattr(vae.config, name, None) for name in ("latents_mean", "latents_std"))
        if mean is not None and std is not None:
            mean, std = (torch.tensor(values, device=latents.device).view(1, -1, 1, 1) for values in (mean, std))
            latents = latents * std / vae.config.scaling_factor + mean
        else:
            latents = latents / vae.config.scaling_factor
        return (vae.decode(latents).sample / 2 + 0.5).clamp(0, 1).cpu()

    def save(self, folder: str | Path) -> None:
        """Write the adapter for ``pipeline.load_lora_weights(folder)``, or the whole UNet (``from_pretrained``)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not self.args.use_lora:
            self.unet.save_pretrained(folder / "unet", safe_serialization=True)
            return
        mixin = StableDiffusionXLLoraLoaderMixin if self.is_xl else StableDiffusionLoraLoaderMixin
        mixin.save_lora_weights(
            folder,
            # Not through convert_state_dict_to_diffusers(): it renames the attention layers only, and a file with both
            # kinds of names loads without them.
            unet_lora_layers=get_peft_model_state_dict(self.unet, adapter_name=ADAPTER),
            unet_lora_adapter_metadata=self.unet.peft_config[ADAPTER].to_dict(),
            safe_serialization=True,
        )

    def load(self, folder: str | Path) -> None:
        """Take over the weights that :meth:`save` wrote, bit by bit.

        Raises:
            InputError: The file does not fit this model.
        """
        folder = Path(folder)
        if self.args.use_lora:
            state = load_file(folder / LORA_WEIGHT_NAME_SAFE)
            state = {name.removeprefix("unet."): value for name, value in state.items()}
            result: Any = set_peft_model_state_dict(self.unet, state, adapter_name=ADAPTER)
            if result.unexpected_keys:
                raise InputError(f"{folder}: the adapter does not fit: unexpected {result.unexpected_keys[0]!r}")
            cast_training_params(self.unet, dtype=torch.float32)
        else:
            loaded = type(self.unet).from_pretrained(folder / "unet")
            self.unet.load_state_dict(loaded.state_dict())


def as_ddim(scheduler: Any) -> DDIMScheduler:
    """A DDIM scheduler with the configuration of any diffusers scheduler.

    Schedulers that never clip (Euler, PNDM, ...) do not record it, and DDIM's default would clip the latents: set it
    off.
    """
    if isinstance(scheduler, DDIMScheduler):
        return scheduler
    extra = {} if "clip_sample" in scheduler.config else {"clip_sample": False}
    return DDIMScheduler.from_config(scheduler.config, **extra)


def noise_for(seed: int, stream: str, index: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal noise of one sample, the same on any number of processes, in any batch and after any resume.

    Args:
        seed: The run's seed.
        stream: What the noise is for, such as ``"train/12"`` or ``"eval"``.
        index: Global index of the sample.
        shape: Shape of the noise.

    Returns:
        float32 tensor on the CPU.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, stream, index))
    return torch.randn(shape, generator=generator)


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed from the parts; equal parts give equal seeds."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _check_pipeline(pipeline: Any) -> None:
    for part in ("unet", "vae", "scheduler", "encode_prompt"):
        if getattr(pipeline, part, None) is None:
            raise InputError(
                f"{type(pipeline).__name__} has no {part}; DDPOTrainer needs a Stable Diffusion 1.x, 2.x or SDXL "
            )
    if pipeline.unet.config.in_channels != pipeline.vae.config.latent_channels:
        raise InputError("the UNet takes more than latents (an inpainting model?); a text-to-image model is needed")


def _add_adapter(unet: Any, args: DDPOConfig) -> None:
    if getattr(unet, "peft_config", None):
        raise InputError("the pipeline already carries a LoRA: fuse it first (fuse_lora(), then unload_lora_weights())")
    config = LoraConfig(
        r=args.lora_rank,
        lora_alpha=args.lora_rank if args.lora_alpha is None else args.lora_alpha,  # type: ignore[arg-type]
        init_lora_weights="gaussian",
        target_modules=list(args.lora_target_modules),
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(args.seed, "adapter"))
            unet.add_adapter(config, adapter_name=ADAPTER)
    except ValueError as error:
        raise InputError(f"lora_target_modules {args.lora_target_modules}: {error}") from error
