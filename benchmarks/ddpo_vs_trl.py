"""DDPOTrainer beside that of TRL 0.22.2, its last: seconds, memory and learning curve on the same pipeline and reward.

TRL's needs an environment of its own (its last release with DDPOTrainer does not work with today's transformers)::

    python -m venv .venv-trl
    .venv-trl/bin/pip install trl==0.22.2 transformers==4.56.2 diffusers==0.35.2 peft==0.17.1 accelerate==1.10.1 torch
    python benchmarks/ddpo_vs_trl.py --peer .venv-trl/bin/python

Each measured run is a process of its own with one thread; the two trainers alternate. Both take the same weights,
prompts, LoRA (rank 4 on attention, as TRL fixed it), sampler, batches and optimiser settings.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPTS = ["a red circle", "a green square", "a blue circle", "a circle on white background"]
BATCHES, BATCH, IMAGES, STEPS, GUIDANCE, RATE, CLIP, TRAIN_BATCH = 2, 16, 8, 10, 5.0, 3e-3, 1e-4, 8
WORDS = sorted({word for prompt in PROMPTS for word in prompt.split()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="python of the environment with trl 0.22.2")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each trainer")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--worker", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        result = _worker(arguments.worker, Path(arguments.weights), arguments.seed, arguments.epochs)
        print("RESULT " + json.dumps(result))
    elif arguments.peer:
        _compare(arguments.peer, arguments.rounds, arguments.epochs)
    else:
        parser.error("--peer is needed")


def _compare(peer: str, rounds: int, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder)
        _save_weights(weights)
        results: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}
        for seed in range(rounds):
            for name in ("ours", "trl") if seed % 2 == 0 else ("trl", "ours"):
                python = sys.executable if name == "ours" else peer
                results[name].append(_run(python, name, weights, seed, epochs))
                print(name, json.dumps(results[name][-1]), flush=True)
    print(f"\n{'':32}{'ours':>12}{'TRL 0.22.2':>12}")
    for key, title in (
        ("sampling", "sampling, CPU ms a picture"),
        ("training", "training, CPU ms a picture"),
        ("wall", "all, wall ms a picture"),
        ("peak", "peak memory above start, MB"),
        ("process", "peak memory of the process, MB"),
        ("first", "reward of the first epoch"),
        ("last", "reward of the last epoch"),
    ):
        values = [sorted(row[key] for row in results[name])[rounds // 2] for name in ("ours", "trl")]
        print(f"{title:32}" + "".join(f"{value:>12.4g}" for value in values))
    print(f"medians of {rounds} runs of {epochs} epochs of {BATCHES * BATCH} pictures, {STEPS} steps, one thread")


def _run(python: str, name: str, weights: Path, seed: int, epochs: int) -> dict[str, Any]:
    command = [
        python,
        __file__,
        "--worker",
        name,
        "--weights",
        str(weights),
        "--seed",
        str(seed),
        "--epochs",
        str(epochs),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(line.removeprefix("RESULT "))


def _worker(name: str, weights: Path, seed: int, epochs: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    clock = {"sampling": 0.0, "training": 0.0}
    rewards: list[float] = []

    def reward(images: Any, prompts: Any, metadata: Any) -> tuple[Any, dict[str, float]]:
        value = images[:, 0].mean((1, 2)) - images[:, 1:].mean((1, 2, 3))
        rewards.extend(value.tolist())
        return value, {}

    pipeline = _pipeline(weights)
    trainer = (_ours if name == "ours" else _trl)(pipeline, reward, clock, seed, epochs)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of imports and loading
    start_memory, start = _memory("VmRSS"), time.perf_counter()
    trainer()
    wall = time.perf_counter() - start
    peak_memory = _memory("VmHWM")
    pictures, epoch = epochs * BATCHES * BATCH, BATCHES * BATCH
    return {
        "sampling": 1000 * clock["sampling"] / pictures,
        "training": 1000 * clock["training"] / pictures,
        "wall": 1000 * wall / pictures,
        "peak": peak_memory - start_memory,
        "process": peak_memory,
        "first": sum(rewards[:epoch]) / epoch,
        "last": sum(rewards[-epoch:]) / epoch,
    }


def _memory(name: str) -> float:
    """MB that this process holds (VmRSS) or held at most (VmHWM); Linux."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _timed(function: Any, clock: dict[str, float], name: str) -> Any:
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        start = time.process_time()
        try:
            return function(*arguments, **keywords)
        finally:
            clock[name] += time.process_time() - start

    return wrapped


def _ours(pipeline: Any, reward: Any, clock: dict[str, float], seed: int, epochs: int) -> Any:
    from rewards import DDPOConfig, DDPOTrainer

    args = DDPOConfig(
        output_dir=tempfile.mkdtemp(),
        seed=seed,
        num_epochs=epochs,
        save_freq=0,
        lora_rank=4,
        sample_num_steps=STEPS,
        sample_guidance_scale=GUIDANCE,
        sample_batch_size=BATCH,
        sample_num_batches_per_epoch=BATCHES,
        sample_num_images_per_prompt=IMAGES,
        train_batch_size=TRAIN_BATCH,
        train_learning_rate=RATE,
        train_clip_range=CLIP,
    )
    trainer = DDPOTrainer(pipeline, reward, PROMPTS, args)
    parts: tuple[Any, Any] = trainer.collector, trainer.method
    parts[0].epoch = _timed(parts[0].epoch, clock, "sampling")
    parts[1].update = _timed(parts[1].update, clock, "training")
    return trainer.train


def _trl(pipeline: Any, reward: Any, clock: dict[str, float], seed: int, epochs: int) -> Any:
    from accelerate import PartialState
    from trl import DDPOConfig, DDPOTrainer, DefaultDDPOStableDiffusionPipeline  # type: ignore[attr-defined]

    PartialState()  # its logger is used before anything has made one
    wrapped = DefaultDDPOStableDiffusionPipeline.__new__(DefaultDDPOStableDiffusionPipeline)
    wrapped.sd_pipeline, wrapped.use_lora = pipeline, True
    for part in (pipeline.vae, pipeline.text_encoder, pipeline.unet):
        part.requires_grad_(False)
    drawn: list[int] = []

    def next_prompt() -> tuple[str, dict[str, Any]]:
        drawn.append(1)
        return PROMPTS[(len(drawn) - 1) // IMAGES % len(PROMPTS)], {}

    args = DDPOConfig(
        seed=seed,
        num_epochs=epochs,
        save_freq=10_000,
        mixed_precision="no",
        sample_num_steps=STEPS,
        sample_guidance_scale=GUIDANCE,
        sample_batch_size=BATCH,
        sample_num_batches_per_epoch=BATCHES,
        train_batch_size=TRAIN_BATCH,
        train_learning_rate=RATE,
        train_clip_range=CLIP,
        per_prompt_stat_tracking=True,
        per_prompt_stat_tracking_min_count=4,
    )
    trainer = DDPOTrainer(args, reward, next_prompt, wrapped)
    trainer._generate_samples = _timed(trainer._generate_samples, clock, "sampling")
    trainer._train_batched_samples = _timed(trainer._train_batched_samples, clock, "training")

    def train() -> None:
        for epoch in range(epochs):
            trainer.step(epoch, epoch)

    return train


def _pipeline(weights: Path | None) -> Any:
    """A Stable Diffusion pipeline of 32 x 32 pictures, built in either environment, with the weights of the first."""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from safetensors.torch import load_file
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    text = CLIPTextConfig(
        vocab_size=4 + len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=12, bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    unet = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, down_block_types=("CrossAttnDownBlock2D",) * 2,
        up_block_types=("CrossAttnUpBlock2D",) * 2, block_out_channels=(64, 128), layers_per_block=1,
        cross_attention_dim=32, attention_head_dim=4, norm_num_groups=8,
    )  # fmt: skip
    vae = AutoencoderKL(
        block_out_channels=(16, 32, 64), latent_channels=4, norm_num_groups=8, scaling_factor=1.0,
        down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3,
    )  # fmt: skip
    parts: dict[str, Any] = {"text": CLIPTextModel(text), "unet": unet, "vae": vae}
    if weights is not None:
        for name, module in parts.items():
            saved = load_file(weights / f"{name}.safetensors")
            # transformers 5 dropped the "text_model." before the names of a text encoder.
            module.load_state_dict({key: saved[key.removeprefix("text_model.")] for key in module.state_dict()})
    scheduler = DDIMScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, clip_sample=False, set_alpha_to_one=False,
        steps_offset=1,
    )  # fmt: skip
    return StableDiffusionPipeline(
        vae=vae, text_encoder=parts["text"], tokenizer=_tokenizer(), unet=unet, scheduler=scheduler,
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, **names)


def _save_weights(folder: Path) -> None:
    from safetensors.torch import save_file

    pipeline = _pipeline(None)
    for name, module in (("text", pipeline.text_encoder), ("unet", pipeline.unet), ("vae", pipeline.vae)):
        state = {key.removeprefix("text_model."): value.contiguous() for key, value in module.state_dict().items()}
        save_file(state, folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
