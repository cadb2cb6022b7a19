"""Tiny pipelines of the real diffusers classes, untrained, and rewards that learn in seconds."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLQwenImage,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
)

from rewards.trainers.diffusion.steppers.ddim import DDIM
from rewards.trainers.diffusion.steppers.flow import Flow

WORDS = "a red green blue circle square on white black background".split()
SCHEDULER: dict[str, Any] = {
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "clip_sample": False,
    "set_alpha_to_one": True,
}
ZERO_SNR: dict[str, Any] = {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "sample"}


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, **names)


def _text(**extra: Any) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=4 + len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=12,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
        **extra,
    )


def _unet(**extra: Any) -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=4,
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        block_out_channels=(16, 32),
        layers_per_block=1,
        cross_attention_dim=extra.pop("cross_attention_dim", 16),
        attention_head_dim=4,
        norm_num_groups=4,
        **extra,
    )


def _vae(image_size: int = 8) -> AutoencoderKL:
    levels = (image_size // 4).bit_length()
    return AutoencoderKL(
        block_out_channels=(8,) * levels,
        norm_num_groups=4,
        latent_channels=4,
        scaling_factor=1.0,
        sample_size=image_size,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
    )


def stable_diffusion(
    seed: int = 0, prediction_type: str = "epsilon", image_size: int = 8, **scheduler: Any
) -> StableDiffusionPipeline:
    """Stable Diffusion 1.x (epsilon) or 2.x (v_prediction) in miniature: 4 x 4 x 4 latents, small square pictures."""
    torch.manual_seed(seed)
    pipeline = StableDiffusionPipeline(
        vae=_vae(image_size),
        text_encoder=CLIPTextModel(_text()),
        tokenizer=tokenizer(),
        unet=_unet(),
        scheduler=DDIMScheduler(**(SCHEDULER | {"prediction_type": prediction_type} | scheduler)),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def stable_diffusion_xl(seed: int = 0) -> StableDiffusionXLPipeline:
    """SDXL in miniature: two text encoders, pooled and size conditioning."""
    torch.manual_seed(seed)
    pipeline = StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=CLIPTextModel(_text(projection_dim=8)),
        text_encoder_2=CLIPTextModelWithProjection(_text(projection_dim=8)),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        unet=_unet(
            cross_attention_dim=32,
            addition_embed_type="text_time",
            addition_time_embed_dim=4,
            projection_class_embeddings_input_dim=4 * 6 + 8,
        ),
        scheduler=DDIMScheduler(**SCHEDULER),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def stable_diffusion_3(seed: int = 0, shift: float = 3.0, **scheduler: Any) -> StableDiffusion3Pipeline:
    """Stable Diffusion 3 in miniature: flow matching, three text encoders, a shift in the autoencoder."""
    torch.manual_seed(seed)
    vae = _vae()
    vae.register_to_config(shift_factor=0.1)
    transformer = SD3Transformer2DModel(
        sample_size=4,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=16,
        pos_embed_max_size=4,
    )
    torch.nn.init.normal_(transformer.proj_out.weight, std=0.2)
    pipeline = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=shift, **scheduler),
        vae=vae,
        text_encoder=CLIPTextModelWithProjection(_text(projection_dim=8)),
        tokenizer=tokenizer(),
        text_encoder_2=CLIPTextModelWithProjection(_text(projection_dim=8)),
        tokenizer_2=tokenizer(),
        text_encoder_3=T5EncoderModel(_t5()),
        tokenizer_3=tokenizer(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def flux(seed: int = 0, guided: bool = True) -> FluxPipeline:
    """FLUX.1-dev in miniature (schnell without `guided`): packed latents, a guidance that the network is told."""
    torch.manual_seed(seed)
    vae = _vae()
    vae.register_to_config(shift_factor=0.1)
    transformer = FluxTransformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=16,
        guidance_embeds=guided,
        axes_dims_rope=(4, 6, 6),
    )
    torch.nn.init.normal_(transformer.proj_out.weight, std=0.2)
    pipeline = FluxPipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=guided, base_image_seq_len=2),
        vae=vae,
        text_encoder=CLIPTextModel(_text()),
        tokenizer=tokenizer(),
        text_encoder_2=T5EncoderModel(_t5()),
        tokenizer_2=tokenizer(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def z_image(seed: int = 0) -> ZImagePipeline:
    """Z-Image in miniature: a chat model reads the prompts, which keep their lengths."""
    torch.manual_seed(seed)
    vae = _vae()
    vae.register_to_config(shift_factor=0.1)
    transformer = ZImageTransformer2DModel(
        in_channels=4,
        dim=32,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=32,
        axes_dims=[4, 6, 6],
        axes_lens=[64, 16, 16],
    )
    words = tokenizer()
    words.chat_template = CHAT
    text = Qwen3Config(
        vocab_size=4 + len(WORDS),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
    )
    pipeline = ZImagePipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        text_encoder=Qwen3Model(text),
        tokenizer=words,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def qwen_image(seed: int = 0) -> QwenImagePipeline:
    """Qwen-Image in miniature: packed latents, prompts of their own length, an autoencoder of videos."""
    torch.manual_seed(seed)
    vae = AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 1],
        num_res_blocks=1,
        temperal_downsample=[False],
        latents_mean=[0.1, -0.2, 0.3, 0.0],
        latents_std=[1.1, 0.9, 1.0, 1.2],
    )
    transformer = QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=(4, 6, 6),
    )
    torch.nn.init.normal_(transformer.proj_out.weight, std=0.2)
    text = {
        "vocab_size": 4 + len(WORDS), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0},
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32,
        "fullatt_block_indexes": [0],
    }  # fmt: skip
    words = tokenizer()
    words.model_max_length = 256
    pipeline = QwenImagePipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_image_seq_len=2),
        vae=vae,
        text_encoder=Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision)),
        tokenizer=words,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _t5() -> T5Config:
    return T5Config(vocab_size=4 + len(WORDS), d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0)


def redness(images: torch.Tensor, prompts: list[str], metadata: Any = None) -> tuple[torch.Tensor, dict[str, float]]:
    """How much redder than green and blue a picture is; learnt in a few epochs."""
    value = images[:, 0].mean((1, 2)) - images[:, 1:].mean((1, 2, 3))
    return value, {"rewards/redness/red/mean": float(images[:, 0].mean()), "rewards/redness/red/count": len(images)}


def four_steps(kind: str) -> Flow | DDIM:
    """A stepper without noise, of flow matching or of a network that predicts `kind`."""
    if kind == "flow":
        sigmas = torch.linspace(1, 0, 5)
        return Flow(1000 * sigmas[:-1], sigmas)
    return DDIM(DDIMScheduler(prediction_type=kind, clip_sample=False), 4, 0.0)
