"""A small BERT that tells texts with a certain word from others, by the Trainer of Hugging Face on any number of workers.

    python examples/hf_classifier.py                                    alone
    taut run --workers 4 examples/hf_classifier.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/hf_classifier.py      in lock-step, on the mean gradient

The model begins with random weights, and the texts are made up: nothing is downloaded. Needs transformers
(pip install 'taut[hf]'). The plain script beside this one: docs/frameworks.md.
"""

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from taut.hf import TautTrainer

WORDS, WORD = 30, 7


def texts(count, seed):
    """Texts of 12 words; the label says whether word 7 is among them."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(WORDS, (count, 12), generator=generator)
    chosen = torch.rand(count, generator=generator) < 0.35
    found[chosen, torch.randint(12, (count,), generator=generator)[chosen]] = WORD
    return [{"input_ids": text, "labels": (text == WORD).any().long()} for text in found]


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(1) == predicted.label_ids).mean()}


torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=16, **sizes))
args = TrainingArguments(
    output_dir="trainer", num_train_epochs=3, per_device_train_batch_size=16, learning_rate=3e-3,
    save_strategy="no", report_to="none", disable_tqdm=True,
)  # fmt: skip
trainer = TautTrainer(
    model, args, train_dataset=texts(2000, seed=1), eval_dataset=texts(400, seed=2), compute_metrics=accuracy
)
trainer.train()
print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
