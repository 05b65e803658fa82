"""Fine-tune a classifier on a published synthetic data set with `transformers.Trainer`, once its guarantee is checked.

python recipes/downstream/classify_with_trainer.py me/reviews --test movie --push me/review-classifier

The accuracy is a figure of the test set as it is, without noise: where that set is private, keep the figure to
yourself. It is printed, and stands in no card.
"""

import argparse
import tempfile
from typing import Any

import numpy as np
from datasets import Dataset
from guarantee import checked_rows, examples, model_folder, public_name, push, stop, test_examples, write_card


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", help="id of the synthetic data set on the Hub")
    parser.add_argument("--revision", help="its branch, tag or commit")
    parser.add_argument("--split", default="train", help="its split (%(default)s)")
    parser.add_argument("--test", required=True, help="test set: a file, a folder, a Hub id or a catalogue name")
    parser.add_argument("--test-split", default="test", help="the split of a test set that has several (%(default)s)")
    parser.add_argument("--text-column", default="text", help="of both data sets (%(default)s)")
    parser.add_argument("--label-column", default="label", help="of both data sets (%(default)s)")
    parser.add_argument(
        "--model", default="minilm", help="encoder: a catalogue name, a folder or a Hub id (%(default)s)"
    )
    parser.add_argument("--epochs", type=float, default=3.0, help="passes over the rows (%(default)s)")
    parser.add_argument(
        "--max-steps", type=int, default=-1, help="steps instead of epochs, where it is positive (%(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="rows a step (%(default)s)")
    parser.add_argument(
        "--learning-rate", type=float, default=2e-4, help="a tenth of it suits models of BERT's size (%(default)s)"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="texts are cut at so many tokens (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the new layer and of the order of the rows (%(default)s)"
    )
    parser.add_argument("--out", default="classifier", help="folder for the model and its card (%(default)s)")
    parser.add_argument("--push", metavar="REPO_ID", help="push the model to this repository, which is made private")
    parser.add_argument("--public", action="store_true", help="make the pushed repository public")
    return parser.parse_args()


def tokenized(tokenizer: Any, texts: list[str], labels: list[int], max_tokens: int) -> Dataset:
    """Return rows for `Trainer`, which pads them batch by batch."""
    rows = tokenizer(texts, truncation=True, max_length=max_tokens)
    return Dataset.from_dict({**{name: rows[name] for name in ("input_ids", "attention_mask")}, "labels": labels})


def accuracy(prediction: Any) -> dict[str, float]:
    """Return the share of rows whose likeliest label is theirs."""
    return {"accuracy": float((np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean())}


def main() -> None:
    """Check, train, measure, save and push."""
    asked = arguments()
    rows, release, commit = checked_rows(asked.dataset, asked.revision, asked.split)
    texts, labels = examples(rows, asked.text_column, asked.label_column)
    names = sorted(set(labels))
    test_texts, test_labels = test_examples(asked.test, asked.test_split, asked.text_column, asked.label_column)
    if set(test_labels) - set(names):
        stop(f"--test has labels that {asked.dataset} has not; its labels are {', '.join(names)}")
    import transformers  # takes seconds, which a refusal need not wait for

    transformers.set_seed(asked.seed)
    base = model_folder(asked.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        base,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: n for n, name in enumerate(names)},
    )
    train, test = (
        tokenized(tokenizer, some, [names.index(label) for label in theirs], asked.max_tokens)
        for some, theirs in ((texts, labels), (test_texts, test_labels))
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                num_train_epochs=asked.epochs,
                max_steps=asked.max_steps,
                per_device_train_batch_size=asked.batch_size,
                per_device_eval_batch_size=asked.batch_size,
                learning_rate=asked.learning_rate,
                seed=asked.seed,
                save_strategy="no",
                report_to="none",
            ),
            train_dataset=train,
            eval_dataset=test,
            processing_class=tokenizer,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
        )
        print(f"loss on {len(train)} synthetic rows: {trainer.train().training_loss:.4f}")
        print(f"accuracy on {len(test)} test rows: {trainer.evaluate()['eval_accuracy']:.4f}")
    trainer.model.save_pretrained(asked.out)
    tokenizer.save_pretrained(asked.out)
    about = {
        "title": f"A classifier of {', '.join(names)}",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
    }
    write_card(asked.out, asked.dataset, commit, release, public_name(asked.model), about)
    print(f"saved: {asked.out}")
    if asked.push:
        push(asked.out, asked.push, asked.public)


if __name__ == "__main__":
    main()
