"""Tiny models of the real architectures with fixed random weights, built from configs, offline, in well under two
seconds.

    path = tiny_models.save("llava", tmp_path / "llava")
    judge = load_judge(path)

`KINDS` lists what can be built. Weights are sharpened, so that probabilities differ visibly between inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "a red circle and a blue square on a white background rate the caption from 1 to 5",
    "is the text correct complete clear fluent concise yes no 1 2 3 4 5 answer rating image caption question",
    "USER: ASSISTANT: user assistant system Question Answer how many what color the picture shows",
] * 20

CHAT = (
    "{% for m in messages %}{{ m['role']|upper }}: {% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}IMAGE{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}IMAGE{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save(kind: str, path: str | os.PathLike[str], seed: int = 0, sharpen: float = 3.0) -> str:
    """Build model and processor `kind`, save both under `path` and return it as a string."""
    torch.manual_seed(seed)
    model, processor = KINDS[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(sharpen)
    model.eval().save_pretrained(path)
    processor.save_pretrained(path)
    return os.fspath(Path(path))


def picture(seed: int = 0, size: tuple[int, int] = (48, 40)) -> Image.Image:
    """A picture of noise, `size` = (width, height)."""
    pixels = np.random.RandomState(seed).randint(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def bpe_tokenizer(specials: list[str], vocab_size: int = 600, **options: Any) -> tf.PreTrainedTokenizerFast:
    """A byte-level BPE as GPT-2's and Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **options)


def sentencepiece_like_tokenizer(specials: list[str], **options: Any) -> tf.PreTrainedTokenizerFast:
    """As Llama's: blanks become "▁", digits stand alone, so that " 5" is a bare "▁" and "5"; bytes as fallback."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    alphabet = ["▁", *"0123456789", *"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *".,:;!?'-/\n<>"]
    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    # Merges within words only: a digit never joins a blank, as in Llama's vocabulary.
    words = [[f"▁{word}" for word in line.split() if not word.isdigit()] for line in CORPUS]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[*specials, *byte_tokens], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([word for line in words for word in line], trainer)
    for token in byte_tokens:
        assert tokenizer.token_to_id(token) is not None
    return tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **options)


def wordpiece_tokenizer() -> tf.PreTrainedTokenizerFast:
    """As BERT's, with BLIP's two extra tokens."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "[ENC]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", bos_token="[DEC]", eos_token="[SEP]",
    )  # fmt: skip


LLAMA_SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
QWEN_SPECIALS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]  # fmt: skip
_TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def _llama_options(**extra: str) -> dict[str, Any]:
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return {**names, "extra_special_tokens": extra}


def _llama_config(tokenizer: Any, layers: int = 2) -> Any:
    return tf.LlamaConfig(
        vocab_size=len(tokenizer), num_hidden_layers=layers, max_position_embeddings=2048, pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2, **_TEXT,
    )  # fmt: skip


def _clip(image_size: int = 28) -> Any:
    return tf.CLIPVisionConfig(
        **{**_VISION, "num_hidden_layers": 3}, image_size=image_size, patch_size=14, projection_dim=32
    )


def _clip_processor() -> Any:
    return tf.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})


def _llava(tokenizer: Any) -> tuple[Any, Any]:
    processor = tf.LlavaProcessor(
        image_processor=_clip_processor(), tokenizer=tokenizer, patch_size=14, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, image_token="<image>", chat_template=CHAT.replace("IMAGE", "<image>\n"),
    )  # fmt: skip
    config = tf.LlavaConfig(
        vision_config=_clip(), text_config=_llama_config(tokenizer), vision_feature_layer=-2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), vision_feature_select_strategy="default",
    )  # fmt: skip
    return tf.LlavaForConditionalGeneration(config), processor


def llava() -> tuple[Any, Any]:
    return _llava(bpe_tokenizer([*LLAMA_SPECIALS, "<image>"], **_llama_options(image_token="<image>")))


def llava_llama_tokenizer() -> tuple[Any, Any]:
    """LLaVA with a tokenizer that puts a bare "▁" before a digit, as LLaVA-1.5's does."""
    return _llava(sentencepiece_like_tokenizer([*LLAMA_SPECIALS, "<image>"], **_llama_options(image_token="<image>")))


def _idefics_tokenizer() -> Any:
    specials = [*LLAMA_SPECIALS, "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
    specials += [f"<row_{row}_col_{column}>" for row in range(1, 3) for column in range(1, 3)]
    return bpe_tokenizer(
        specials,
        **_llama_options(
            image_token="<image>", fake_image_token="<fake_token_around_image>", global_image_token="<global-img>",
            end_of_utterance_token="<end_of_utterance>",
        ),
    )  # fmt: skip


def _idefics_sizes() -> dict[str, Any]:
    return {"size": {"longest_edge": 112}, "max_image_size": {"longest_edge": 56}, "do_image_splitting": True}


def _idefics_config(config_class: Any, tokenizer: Any) -> Any:
    return config_class(
        vision_config={**_VISION, "image_size": 56, "patch_size": 14}, text_config=_llama_config(tokenizer),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), scale_factor=2, pad_token_id=0,
    )  # fmt: skip


def idefics3() -> tuple[Any, Any]:
    tokenizer = _idefics_tokenizer()
    processor = tf.Idefics3Processor(
        image_processor=tf.Idefics3ImageProcessor(**_idefics_sizes()), tokenizer=tokenizer, image_seq_len=4,
        chat_template=CHAT.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return tf.Idefics3ForConditionalGeneration(_idefics_config(tf.Idefics3Config, tokenizer)), processor


def smolvlm() -> tuple[Any, Any]:
    tokenizer = _idefics_tokenizer()
    processor = tf.SmolVLMProcessor(
        image_processor=tf.SmolVLMImageProcessor(**_idefics_sizes()), tokenizer=tokenizer,
        video_processor=tf.SmolVLMVideoProcessor(), image_seq_len=4, chat_template=CHAT.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return tf.SmolVLMForConditionalGeneration(_idefics_config(tf.SmolVLMConfig, tokenizer)), processor


def _qwen_parts(patch: int) -> tuple[Any, Any, dict[str, int]]:
    tokenizer = bpe_tokenizer(
        QWEN_SPECIALS, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
        },
    )  # fmt: skip
    side = 2 * patch
    sizes = {"size": {"shortest_edge": side * side, "longest_edge": side * side * 16}}
    image_processor = tf.Qwen2VLImageProcessor(**sizes, patch_size=patch, merge_size=2, temporal_patch_size=2)
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    tokens = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in zip(names, tokens)}
    return tokenizer, image_processor, ids


def _qwen_text(tokenizer: Any, **extra: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    return {
        **_TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 2048, "rope_parameters": rope,
        "bos_token_id": 0,
        "eos_token_id": 2, "pad_token_id": 0, **extra,
    }  # fmt: skip


def qwen2_5_vl() -> tuple[Any, Any]:
    tokenizer, image_processor, ids = _qwen_parts(14)
    processor = tf.Qwen2_5_VLProcessor(
        image_processor=image_processor, tokenizer=tokenizer, video_processor=tf.Qwen2VLVideoProcessor(),
        chat_template=CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 56, "fullatt_block_indexes": [1],
    }  # fmt: skip
    config = tf.Qwen2_5_VLConfig(text_config=_qwen_text(tokenizer, num_hidden_layers=2), vision_config=vision, **ids)
    return tf.Qwen2_5_VLForConditionalGeneration(config), processor


def qwen2_vl() -> tuple[Any, Any]:
    tokenizer, image_processor, ids = _qwen_parts(14)
    processor = tf.Qwen2VLProcessor(
        image_processor=image_processor, tokenizer=tokenizer, video_processor=tf.Qwen2VLVideoProcessor(),
        chat_template=CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )  # fmt: skip
    vision = {
        "depth": 2, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 4, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    config = tf.Qwen2VLConfig(text_config=_qwen_text(tokenizer, num_hidden_layers=2), vision_config=vision, **ids)
    return tf.Qwen2VLForConditionalGeneration(config), processor


def qwen3_vl() -> tuple[Any, Any]:
    tokenizer, image_processor, ids = _qwen_parts(16)
    processor = tf.Qwen3VLProcessor(
        image_processor=image_processor, tokenizer=tokenizer, video_processor=tf.Qwen3VLVideoProcessor(),
        chat_template=CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    )  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": [0],
        "num_position_embeddings": 64,
    }  # fmt: skip
    text = _qwen_text(tokenizer, num_hidden_layers=3, head_dim=16)
    return tf.Qwen3VLForConditionalGeneration(
        tf.Qwen3VLConfig(text_config=text, vision_config=vision, **ids)
    ), processor


def llava_next() -> tuple[Any, Any]:
    tokenizer = bpe_tokenizer([*LLAMA_SPECIALS, "<image>"], **_llama_options(image_token="<image>"))
    grid = [[28, 56], [56, 28], [56, 56]]
    processor = tf.LlavaNextProcessor(
        image_processor=tf.LlavaNextImageProcessor(
            size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=grid
        ),
        tokenizer=tokenizer, patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        image_token="<image>", chat_template=CHAT.replace("IMAGE", "<image>\n"),
    )  # fmt: skip
    config = tf.LlavaNextConfig(
        vision_config=_clip(), text_config=_llama_config(tokenizer), vision_feature_layer=-2, image_grid_pinpoints=grid,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), vision_feature_select_strategy="default",
    )  # fmt: skip
    return tf.LlavaNextForConditionalGeneration(config), processor


def internvl() -> tuple[Any, Any]:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
    tokenizer = bpe_tokenizer(
        specials, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        extra_special_tokens={
            "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    )  # fmt: skip
    size = {"height": 28, "width": 28}
    processor = tf.InternVLProcessor(
        image_processor=tf.GotOcr2ImageProcessor(size=size, crop_to_patches=True, min_patches=1, max_patches=4),
        tokenizer=tokenizer, video_processor=tf.InternVLVideoProcessor(size=size), image_seq_length=4,
        chat_template=CHATML.replace("IMAGE", "<IMG_CONTEXT>\n"),
    )  # fmt: skip
    text = tf.Qwen2Config(
        vocab_size=len(tokenizer), num_hidden_layers=2, max_position_embeddings=2048, pad_token_id=0, bos_token_id=None,
        eos_token_id=2, **_TEXT,
    )  # fmt: skip
    config = tf.InternVLConfig(
        vision_config={**_VISION, "image_size": [28, 28], "patch_size": [7, 7]}, text_config=text,
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"), image_seq_length=4, downsample_ratio=0.5,
    )  # fmt: skip
    return tf.InternVLForConditionalGeneration(config), processor


def gemma3() -> tuple[Any, Any]:
    """With a sliding window of 24 tokens on every second layer, shorter than the prompts."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
    specials += ["<start_of_turn>", "<end_of_turn>"]
    tokenizer = bpe_tokenizer(
        specials, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>",
        extra_special_tokens={
            "image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
        },
    )  # fmt: skip
    chat = CHATML.replace("<|im_start|>", "<start_of_turn>").replace("<|im_end|>", "<end_of_turn>")
    processor = tf.Gemma3Processor(
        image_processor=tf.Gemma3ImageProcessor(size={"height": 32, "width": 32}), tokenizer=tokenizer,
        image_seq_length=4,
        chat_template="{{ bos_token }}" + chat.replace("IMAGE", "<start_of_image>").replace("assistant", "model"),
    )  # fmt: skip
    text = tf.Gemma3TextConfig(
        vocab_size=len(tokenizer), num_hidden_layers=4, max_position_embeddings=2048, pad_token_id=0, bos_token_id=2,
        eos_token_id=1, head_dim=16, sliding_window=24, layer_types=["sliding_attention", "full_attention"] * 2,
        query_pre_attn_scalar=16, **_TEXT,
    )  # fmt: skip
    ids = tokenizer.convert_tokens_to_ids(["<start_of_image>", "<end_of_image>", "<image_soft_token>"])
    config = tf.Gemma3Config(
        text_config=text, vision_config={**_VISION, "image_size": 32, "patch_size": 8}, mm_tokens_per_image=4,
        boi_token_id=ids[0], eoi_token_id=ids[1], image_token_id=ids[2],
    )  # fmt: skip
    return tf.Gemma3ForConditionalGeneration(config), processor


def mistral_llava() -> tuple[Any, Any]:
    """LLaVA on a language model whose every layer has a sliding window of 24 tokens."""
    model, processor = llava()
    text = tf.MistralConfig(
        vocab_size=len(processor.tokenizer), num_hidden_layers=2, max_position_embeddings=2048, pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2, sliding_window=24, **_TEXT,
    )  # fmt: skip
    config = tf.LlavaConfig(
        vision_config=_clip(), text_config=text, vision_feature_layer=-2, image_token_id=model.config.image_token_id,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    return tf.LlavaForConditionalGeneration(config), processor


def llava_onevision() -> tuple[Any, Any]:
    """An architecture outside the tested ones: it takes the plain path."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
    tokenizer = bpe_tokenizer(
        specials, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        extra_special_tokens={"image_token": "<image>", "video_token": "<video>"},
    )  # fmt: skip
    grid = [[28, 56], [56, 28], [56, 56]]
    size = {"height": 28, "width": 28}
    processor = tf.LlavaOnevisionProcessor(
        image_processor=tf.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=grid), tokenizer=tokenizer,
        video_processor=tf.LlavaOnevisionVideoProcessor(size=size), num_image_tokens=4,
        vision_aspect_ratio="anyres_max_2",
        vision_feature_select_strategy="full", chat_template=CHATML.replace("IMAGE", "<image>\n"),
    )  # fmt: skip
    text = tf.Qwen2Config(
        vocab_size=len(tokenizer), num_hidden_layers=2, max_position_embeddings=2048, pad_token_id=0, bos_token_id=None,
        eos_token_id=2, **_TEXT,
    )  # fmt: skip
    vision = tf.SiglipVisionConfig(**_VISION, image_size=28, patch_size=14, vision_use_head=False)
    ids = tokenizer.convert_tokens_to_ids(["<image>", "<video>"])
    config = tf.LlavaOnevisionConfig(
        vision_config=vision, text_config=text, image_token_id=ids[0], video_token_id=ids[1], image_grid_pinpoints=grid,
        vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2", vision_feature_layer=-1,
    )  # fmt: skip
    return tf.LlavaOnevisionForConditionalGeneration(config), processor


def blip() -> tuple[Any, Any]:
    tokenizer = wordpiece_tokenizer()
    start, end = tokenizer.convert_tokens_to_ids(["[DEC]", "[SEP]"])
    config = tf.BlipConfig(
        text_config={
            **_VISION, "vocab_size": len(tokenizer), "encoder_hidden_size": 32, "max_position_embeddings": 64,
            "bos_token_id": start, "eos_token_id": end, "sep_token_id": end, "pad_token_id": 0, "projection_dim": 32,
        },
        vision_config={
            **_VISION, "image_size": 32, "patch_size": 8, "projection_dim": 32, "initializer_range": 0.05,
        },
        projection_dim=32,
    )  # fmt: skip
    processor = tf.BlipProcessor(tf.BlipImageProcessor(size={"height": 32, "width": 32}), tokenizer)
    return tf.BlipForQuestionAnswering(config), processor


def vilt() -> tuple[Any, Any]:
    tokenizer = wordpiece_tokenizer()
    labels = ["yes", "no", "red", "blue", "circle", "square", "1", "2", "3"]
    config = tf.ViltConfig(
        **_VISION, vocab_size=len(tokenizer), image_size=64, patch_size=16, max_position_embeddings=40,
        id2label=dict(enumerate(labels)), label2id={label: index for index, label in enumerate(labels)},
    )  # fmt: skip
    processor = tf.ViltProcessor(tf.ViltImageProcessor(size={"shortest_edge": 32}, size_divisor=32), tokenizer)
    return tf.ViltForQuestionAnswering(config), processor


def git() -> tuple[Any, Any]:
    tokenizer = wordpiece_tokenizer()
    config = tf.GitConfig(
        vision_config={**_VISION, "image_size": 32, "patch_size": 8}, vocab_size=len(tokenizer), **_VISION,
        max_position_embeddings=128, bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    image_processor = tf.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return tf.GitForCausalLM(config), tf.GitProcessor(image_processor, tokenizer)


def _blip2(text_config: dict[str, Any], tokenizer: Any) -> tuple[Any, Any]:
    qformer = {**_VISION, "vocab_size": len(tokenizer), "encoder_hidden_size": 32, "cross_attention_frequency": 1}
    config = tf.Blip2Config(
        vision_config={**_VISION, "image_size": 32, "patch_size": 8}, qformer_config=qformer, text_config=text_config,
        num_query_tokens=4, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    processor = tf.Blip2Processor(
        tf.BlipImageProcessor(size={"height": 32, "width": 32}), tokenizer, num_query_tokens=4
    )
    return tf.Blip2ForConditionalGeneration(config), processor


def blip2_opt() -> tuple[Any, Any]:
    tokenizer = bpe_tokenizer(
        ["<pad>", "</s>", "<unk>", "<image>"], pad_token="<pad>", bos_token="</s>", eos_token="</s>", unk_token="<unk>"
    )
    text = {
        "model_type": "opt", "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64,
        "num_attention_heads": 4, "word_embed_proj_dim": 32, "max_position_embeddings": 512, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    return _blip2(text, tokenizer)


def blip2_t5() -> tuple[Any, Any]:
    """As blip2-flan-t5: an encoder-decoder writes the answer."""
    tokenizer = bpe_tokenizer(
        ["<pad>", "</s>", "<unk>", "<image>"], pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    text = {
        "model_type": "t5", "vocab_size": len(tokenizer), "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
        "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
    }  # fmt: skip
    return _blip2(text, tokenizer)


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    build.__name__: build
    for build in (
        llava, llava_llama_tokenizer, mistral_llava, llava_next, internvl, gemma3, llava_onevision, idefics3,
        smolvlm, qwen2_vl, qwen2_5_vl, qwen3_vl, blip, vilt, git, blip2_opt, blip2_t5,
    )
}  # fmt: skip
