"""Tiny text models of the real classes: a causal model that has learnt to write questions, and a T5."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers as tf
from tokenizers import processors

from tests import tiny_models

INSTRUCTION = "write questions\n\n"
"""What stands before every description, for the tiny writer."""

_LINES = """
a red dot
Elements: red (color)
About red (color):
Q: what color is it?
Choices: blue, red
A: red
Q: is it red?
Choices: yes, no
A: yes

two dogs in a park
Elements: two (counting)
About two (counting):
Q: how many dogs?
Choices: 1, 2
A: 2

a cat on a very long green sofa
Elements: cat (animal)
About cat (animal):
Q: is there a cat?
Choices: yes, no
A: maybe
Q: is it a cat?
Choices: yes, no
A: yes
"""
TAUGHT = dict(block.split("\n", 1) for block in _LINES.strip().split("\n\n"))
"""Descriptions and the outputs that :func:`save_writer`'s model gives for them."""

_CHAT = (
    "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_writer(folder: Path) -> str:
    """A Llama that was trained for some seconds to continue :data:`INSTRUCTION` and a description of :data:`TAUGHT`."""
    torch.manual_seed(0)
    specials = ["<pad>", "<s>", "</s>", "<unk>", "<user>", "<assistant>"]
    tokenizer = tiny_models.bpe_tokenizer(
        specials, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = _CHAT
    config = tf.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32768, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = tf.LlamaForCausalLM(config)
    prompts = [f"<user>{INSTRUCTION}Description: {text}<assistant>" for text in TAUGHT]
    rows = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    answers = [tokenizer(output + "</s>")["input_ids"] for output in TAUGHT.values()]
    batch = tokenizer.pad({"input_ids": [row + answer for row, answer in zip(rows, answers)]}, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(120):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss < 0.01:
            break
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_t5(folder: Path) -> str:
    """A T5 with sharpened random weights, whose answers depend on what it is asked."""
    torch.manual_seed(1)
    tokenizer = tiny_models.bpe_tokenizer(
        ["<pad>", "</s>", "<unk>"], pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.padding_side = "right"
    ending = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.backend_tokenizer.post_processor = ending
    config = tf.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=0,
        eos_token_id=1, decoder_start_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    model = tf.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
