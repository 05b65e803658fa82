"""Fine-tune a language model on a published synthetic data set with `trl.SFTTrainer`, once its guarantee is checked.

python recipes/downstream/sft_with_trl.py me/reviews --test movie --push me/review-writer

A low-rank adapter (peft) learns to write a text behind the prefix that names its label; the prefix itself carries no
loss. The loss on a test set is a figure of that set as it is, without noise: where the set is private, keep the figure
to yourself.
"""

import argparse
import tempfile
from typing import Any

from datasets import Dataset
from guarantee import checked_rows, examples, model_folder, public_name, push, test_examples, write_card


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", help="id of the synthetic data set on the Hub")
    parser.add_argument("--revision", help="its branch, tag or commit")
    parser.add_argument("--split", default="train", help="its split (%(default)s)")
    parser.add_argument("--test", help="rows to measure the loss on: a file, a folder, a Hub id or a catalogue name")
    parser.add_argument("--test-split", default="test", help="the split of a test set that has several (%(default)s)")
    parser.add_argument("--text-column", default="text", help="of both data sets (%(default)s)")
    parser.add_argument("--label-column", default="label", help="of both data sets (%(default)s)")
    parser.add_argument("--model", default="smollm2-135m", help="a catalogue name, a folder or a Hub id (%(default)s)")
    parser.add_argument(
        "--rank", type=int, default=8, help="rank of the low-rank updates of all linear layers (%(default)s)"
    )
    parser.add_argument("--epochs", type=float, default=3.0, help="passes over the rows (%(default)s)")
    parser.add_argument(
        "--max-steps", type=int, default=-1, help="steps instead of epochs, where it is positive (%(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="rows a step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="largest step of AdamW (%(default)s)")
    parser.add_argument(
        "--max-tokens", type=int, default=128, help="prefix and text are cut at so many tokens (%(default)s)"
    )
    parser.add_argument(
        "--new-tokens", type=int, default=32, help="tokens of the text that is shown for each label (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the adapter, the order of the rows and the texts shown (%(default)s)"
    )
    parser.add_argument("--out", default="adapter", help="folder for the adapter and its card (%(default)s)")
    parser.add_argument("--push", metavar="REPO_ID", help="push the adapter to this repository, which is made private")
    parser.add_argument("--public", action="store_true", help="make the pushed repository public")
    return parser.parse_args()


def prefix(column: str, label: str) -> str:
    """Return the words that a text of a label follows."""
    return f"{column}: {label}\ntext:"


def conditioned(column: str, texts: list[str], labels: list[str]) -> Dataset:
    """Return prompts and completions, whose prompts carry no loss."""
    prompts = [prefix(column, label) for label in labels]
    return Dataset.from_dict({"prompt": prompts, "completion": [f" {text}" for text in texts]})


def show(trainer: Any, column: str, names: list[str], new_tokens: int) -> None:
    """Print a text of each label."""
    tokenizer, model = trainer.processing_class, trainer.model.eval()
    for name in names:
        asked = tokenizer(prefix(column, name), return_tensors="pt").to(model.device)
        ids = {key: asked[key] for key in ("input_ids", "attention_mask")}
        made = model.generate(**ids, max_new_tokens=new_tokens, do_sample=True, pad_token_id=tokenizer.pad_token_id)
        text = tokenizer.decode(made[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
        print(f"{column} {name}: {' '.join(text.split())}")


def main() -> None:
    """Check, train, measure, show, save and push."""
    asked = arguments()
    rows, release, commit = checked_rows(asked.dataset, asked.revision, asked.split)
    texts, labels = examples(rows, asked.text_column, asked.label_column)
    test = None
    if asked.test:
        held = test_examples(asked.test, asked.test_split, asked.text_column, asked.label_column)
        test = conditioned(asked.label_column, *held)
    import transformers  # these take seconds, which a refusal need not wait for
    import trl
    from peft import LoraConfig

    transformers.set_seed(asked.seed)
    base = model_folder(asked.model)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.SFTTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(base),
            args=trl.SFTConfig(
                output_dir=folder,
                num_train_epochs=asked.epochs,
                max_steps=asked.max_steps,
                per_device_train_batch_size=asked.batch_size,
                per_device_eval_batch_size=asked.batch_size,
                learning_rate=asked.learning_rate,
                max_length=asked.max_tokens,
                completion_only_loss=True,
                bf16=False,
                gradient_checkpointing=False,
                seed=asked.seed,
                save_strategy="no",
                report_to="none",
            ),
            train_dataset=conditioned(asked.label_column, texts, labels),
            eval_dataset=test,
            processing_class=transformers.AutoTokenizer.from_pretrained(base),
            peft_config=LoraConfig(
                r=asked.rank, lora_alpha=2 * asked.rank, target_modules="all-linear", task_type="CAUSAL_LM"
            ),
        )
        before = trainer.evaluate()["eval_loss"] if test else None
        print(f"loss on {len(texts)} synthetic rows: {trainer.train().training_loss:.4f}")
        if test:
            print(f"loss on {len(test)} test rows: {trainer.evaluate()['eval_loss']:.4f}, before {before:.4f}")
    show(trainer, asked.label_column, sorted(set(labels)), asked.new_tokens)
    if asked.push:  # elsewhere the path of a folder leads nowhere
        trainer.model.peft_config["default"].base_model_name_or_path = public_name(asked.model)
    trainer.model.save_pretrained(asked.out)
    trainer.processing_class.save_pretrained(asked.out)
    about = {"title": "A writer of texts by label", "library_name": "peft", "pipeline_tag": "text-generation"}
    write_card(asked.out, asked.dataset, commit, release, public_name(asked.model), about)
    print(f"saved: {asked.out}")
    if asked.push:
        push(asked.out, asked.push, asked.public)


if __name__ == "__main__":
    main()
