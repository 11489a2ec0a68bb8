"""Hugging Face's Trainer for a plan: its batches, its noise, and the certificate of what was run."""

from collections.abc import Mapping
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import seed_worker

from hockeystick.calls import made_by
from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.mechanism import Mechanism
from hockeystick.plan import Plan
from hockeystick.samplers import Attribution
from hockeystick.training.huggingface.arguments import (
    check_batch_size,
    check_evaluation,
    check_precision,
    check_steps,
    checked_arguments,
)
from hockeystick.training.huggingface.artefacts import Artefacts, artefacts_in
from hockeystick.training.huggingface.checkpoints import Checkpoints
from hockeystick.training.huggingface.exact import WholeBatches, check_mode, without_random_numbers
from hockeystick.training.huggingface.independence import Independence, check_rows, some_of
from hockeystick.training.huggingface.losses import ExampleLosses, check_own_loss, checked, losses_of
from hockeystick.training.huggingface.preparation import in_order, numbered
from hockeystick.training.huggingface.private_names import check_names, keep_from_accelerate
from hockeystick.training.huggingface.processes import (
    Alone,
    check_data,
    figures_of_one,
    mean_over_all,
    seed_apart,
    shared,
)
from hockeystick.training.huggingface.rows import Rows
from hockeystick.training.huggingface.shards import (
    is_sharded,
    making,
    mode_of,
    passes_of_all,
    share_out,
    share_out_again,
)
from hockeystick.training.invariance import Invariance
from hockeystick.training.record import RunRecord
from hockeystick.training.torch import PrivacyEngine
from hockeystick.training.torch.loader import size_of_dataset


@made_by("hs.huggingface.Trainer(plan=plan, model=model, args=args, train_dataset=data)")
class Trainer(Checkpoints, transformers.Trainer):
    """Takes the place of ``transformers.Trainer``.

    >>> import tempfile
    >>> import hockeystick as hs
    >>> from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
    >>> data = [{"input_ids": [i % 7, 1, 2], "labels": [i % 7, 1, 2]} for i in range(60)]
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))
    >>> plan = hs.Mechanism(sampler=hs.BallsInBins(bins=6, epochs=1), noise_multiplier=2.0)
    >>> options = {"num_train_epochs": 1, "per_device_train_batch_size": 10, "use_cpu": True}
    >>> quiet = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "report_to": "none"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arguments = TrainingArguments(folder, **options, **quiet)
    ...     trainer = Trainer(plan=plan, model=model, args=arguments, train_dataset=data)
    ...     steps = trainer.train().global_step
    {'train_runtime': ...}
    >>> steps
    6
    >>> trainer.certificate(delta=1e-5).epsilon.upper < 4.0
    True

    Every step of the Trainer is a step of the plan, with its batch and its noise. Batches are used in parts of at most
    ``per_device_train_batch_size`` examples, as Opacus' ``BatchMemoryManager`` does; ``max_grad_norm`` is the norm to
    which the gradient of each example is clipped; noisy sums are divided by the plan's expected batch size. The loss is
    one number for each example, whatever else is in its batch. Checkpoints hold the run, are written whole or not at
    all, and are secret. Processes that torchrun started share out every batch; the first has the noise, and writes
    checkpoints. Of a model of ``fully_shard``, which needs "ghost", each has the noise and the state of its shards.

    With ``exact=True``, or a plan that says so, gradients are whole numbers of a proved norm, and so are sums and
    noise; the certificate then covers the bits (``docs/theory/exact-sums.md``). Every part of a batch is filled up to
    ``per_device_train_batch_size`` rows, best a multiple of 32, and all texts have to have one length.

    Not private, and not for publication: logs, which have the training loss, and checkpoints. What a certificate covers
    is the trained weights, and those of every step before.

    Args:
        plan, rng, secure_mode, noise_dtype, attribution: as :class:`hockeystick.torch.PrivacyEngine` has them.
        model: of transformers or peft, or any module with ``example_losses``. Its trained parameters are float32 or
            float64; frozen ones may have any type.
        args: transformers' training arguments; with ``fsdp=True``, processes share the model out by ``fully_shard``.
        train_dataset: has a length and gives examples by index, each a mapping from the names of the model's inputs
            unless ``data_collator`` makes such of them.
        grad_sample_mode: "hooks", or "ghost" for ghost clipping, which keeps no per-sample gradients: less memory, a
            second backward pass, and the same mechanism. Weights that several layers share, and layers in 16 bits, need
            "hooks".
        example_losses: gives one loss for each example, from the model's outputs and the labels of the batch by name,
            which the model is not given; for models that predict tokens or classes there is one already. Its numbers
            must each depend on their own example alone.
        try_independence: whether two examples are tried before the first step: their losses and gradients have to be
            the same alone and in one batch, without dropout, and no loss may depend on the other example.
            False for models with other random numbers.
        exact, invariance: as :class:`hockeystick.torch.PrivacyEngine` has them; for "hooks", and models of
            ``fully_shard``.
        options: the other arguments of ``transformers.Trainer``.

    Attributes:
        engine: the :class:`hockeystick.torch.PrivacyEngine`, which has the run once the training began.

    Raises: InvalidInputError, naming the argument, for what would break the mechanism (batches of another size, steps
    past the plan, losses that are scaled for half precision, data in another order in other processes, evaluation on
    the training data);
    UnsupportedError for a model without losses by example, for examples that depend on each other, for exact sums of a
    model that draws random numbers, and as the engine does.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *,
        plan: Plan | Mechanism,
        model: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        example_losses: ExampleLosses | None = None,
        grad_sample_mode: str = "hooks",
        try_independence: bool = True,
        rng: np.random.Generator | None = None,
        secure_mode: bool = False,
        noise_dtype: Any = np.float32,
        attribution: Attribution | None = None,
        exact: bool | None = None,
        invariance: Invariance | float | None = None,
        **options: Any,
    ) -> None:
        check_names()
        for name in ("model_init", "compute_loss_func"):
            if options.get(name) is not None:
                raise InvalidInputError(
                    f"The {name!r} argument must be left out; give 'model', and 'example_losses' for a loss."
                )
        if grad_sample_mode not in ("hooks", "ghost"):
            raise InvalidInputError(
                f"The 'grad_sample_mode' argument must be 'hooks' or 'ghost'. Got {grad_sample_mode!r} instead."
            )
        if args is None and self._base() is not transformers.Trainer:
            raise InvalidInputError("The 'args' argument has to be given, with as many steps as the plan has.")
        self.given = transformers.TrainingArguments() if args is None else args
        self._attribution = attribution
        self._tries_independence = try_independence
        self._gradients: dict[str, Any] = {"grad_sample_mode": grad_sample_mode}
        if grad_sample_mode == "ghost":
            self._gradients["criterion"] = torch.nn.Identity()  # it gets the losses of the examples
        self._criterion: Any = None
        noise = {"rng": rng, "secure_mode": secure_mode, "dtype": noise_dtype, "attribution": attribution}
        self.engine = PrivacyEngine(plan, exact=exact, invariance=invariance, **noise)
        self._exact = self.engine.mechanism.exact
        if self._exact:
            self.engine._physical = self.given.per_device_train_batch_size
        self._losses = torch.zeros(0)  # of the physical batch that was used last
        if train_dataset is not None:
            self._check_dataset(train_dataset, options.get("data_collator"))
        check_evaluation(options.get("eval_dataset"), train_dataset)
        check_precision(self.given, grad_sample_mode)
        prepares = self._base() is not transformers.Trainer and train_dataset is not None
        data = numbered(train_dataset) if prepares else train_dataset
        arguments = checked_arguments(self.given)
        if self.given.fsdp:
            model = share_out(model, self.given)
        if self._exact:
            check_mode(grad_sample_mode, model)
        with making(self._base().__name__, model):
            super().__init__(model=model, args=arguments, train_dataset=data, **options)
        self.train_dataset = in_order(vars(self)["train_dataset"], data, train_dataset)
        self._given_data = train_dataset
        self._losses_given = example_losses is not None
        self.example_losses = losses_of(_base_of(self.model)) if example_losses is None else example_losses
        self.example_rows = Rows()
        self._private_loader: Any = None
        self.add_callback(_Position(self.engine))

    def certificate(self, delta: float | None = None, **options: Any) -> Certificate:
        """The certificate of the run; see :meth:`hockeystick.torch.PrivacyEngine.certificate`."""
        return self.engine.certificate(delta, **options)

    def record(self, certificate: Certificate | None = None, *, stopped_without_looking: bool = False) -> RunRecord:
        """The record of the run; see :meth:`hockeystick.training.Run.record`."""
        tried = ("independence_tried",) if self._tries_independence else ()
        return self.engine.run.record(
            certificate,
            stopped_without_looking=stopped_without_looking,
            also_checked=(*self.engine.also_checked, *tried),
            rho=self.engine.rho,
        )

    def artefacts(self, *folders: Path | str) -> Artefacts:
        """What the training left in its ``output_dir`` and in other folders, each file with whether it is covered.

        Raises: InvalidInputError for a folder that does not exist.
        """
        return artefacts_in(dict.fromkeys([Path(self.args.output_dir), *map(Path, folders)]))

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: Any = None) -> Any:
        """As transformers has it, once; with ``resume_from_checkpoint`` it continues the run that was saved.

        Raises: InvalidInputError for a second training that does not continue a checkpoint, for a trial of a search,
        and for a checkpoint of another plan, or without its run.
        """
        if trial is not None:
            raise InvalidInputError("A search trains several models, each of which needs a Trainer of its own.")
        if self._private_loader is not None and self.engine.run.step and not resume_from_checkpoint:
            raise InvalidInputError(
                f"The run of this Trainer is at step {self.engine.run.step} already; continue it by "
                "train(resume_from_checkpoint=True), or make another Trainer."
            )
        return super().train(resume_from_checkpoint, ignore_keys_for_eval=ignore_keys_for_eval)

    def get_train_dataloader(self) -> Any:
        """The loader of the run. Accelerate must not see it, as it would share its batches out."""
        if self._private_loader is None:
            self._make_private()
        return self._private_loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """As transformers has it; raises InvalidInputError for the training data, or a part of them."""
        check_evaluation(eval_dataset, self._given_data)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """As transformers has it, for ``predict``; raises as :meth:`get_eval_dataloader`."""
        check_evaluation(test_dataset, self._given_data, "test_dataset")
        return super().get_test_dataloader(test_dataset)

    def create_optimizer(self, model: Any = None) -> Any:
        """The optimizer of the run."""
        del model
        self.get_train_dataloader()
        return self.optimizer

    def _check_dataset(self, dataset: Any, collator: Any) -> None:
        """Refuse a dataset of another size than the plan's, and examples that are no inputs by name."""
        size_of_dataset(dataset, self.engine._num_examples, "The 'train_dataset' argument")
        example = dataset[0] if collator is None else {}
        if not isinstance(example, Mapping) and not hasattr(example, "__dict__"):
            raise InvalidInputError(
                "The 'train_dataset' argument must give mappings from the names of the model's inputs, or "
                f"'data_collator' has to make such of its examples. Got an example of type {type(example).__name__!r}."
            )

    def _make_private(self) -> None:
        """Check the model, the batches and the losses, and have the engine make optimizer and loader of the run."""
        if self.train_dataset is None:
            raise InvalidInputError("The 'train_dataset' argument has to be given.")
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise InvalidInputError(
                "The 'model' argument must have at least one parameter that requires gradients. Got none."
            )
        self.model.train()
        share_out_again(self.model)
        optimizer = super().create_optimizer()
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
                raise InvalidInputError(
                    f"Trained parameters must be float32 or float64, as the norms of their gradients are; {name!r} is "
                    f"{parameter.dtype}."
                )
        check_data(self.train_dataset, self.accelerator)
        module = shared(self.model, self.accelerator)
        mode = mode_of(self.model, self._gradients["grad_sample_mode"], self.args)
        plain = self._plain_loader()
        self._check_lengths()
        batch = plain.collate_fn([plain.dataset[0]])
        self.example_rows = Rows(batch)
        check_rows(self.example_rows, plain.collate_fn, plain.dataset)
        check_own_loss(
            self._base().__name__,
            has_losses_by_example=bool(self._labels_in(batch)),
            rows=self.example_rows.most,
            is_tried=self._tries_independence,
            grad_sample_mode=self._gradients["grad_sample_mode"],
            processes=self.accelerator.num_processes,
            exact=self._exact,
            sharded=is_sharded(self.model),
        )
        alone = None
        if self._tries_independence:
            alone = Independence(self, *some_of(plain.dataset), partial(self._loss_of, plain, self.compute_loss))
            alone.check_processes()
            if self._has_own_loss() and not self._losses_given and self._labels_in(batch):
                alone.check_meaning(partial(self._loss_of, plain, super().compute_loss), self._base().__name__)
        share_out_again(self.model)
        _, optimizer, *criterion, loader = self.engine.make_private(
            module=module,
            optimizer=optimizer,
            data_loader=plain,
            max_grad_norm=self.args.max_grad_norm,
            wrap_model=False,  # hooks alone, so that the model is still one of transformers
            **self._gradients | {"grad_sample_mode": mode},
        )
        # transformers counts epochs of one length
        loader.batch_sampler.epoch_length = Fraction(self.engine.run.steps_per_epoch)
        self._criterion = criterion[0] if criterion else None
        keep_from_accelerate(optimizer)
        if alone is not None:
            alone.check(optimizer)
        seed_apart(self.args.seed, self.args.process_index)
        self.optimizer = optimizer
        self._private_loader = WholeBatches(loader) if self._exact else loader

    @classmethod
    def _base(cls) -> type[Any]:
        """The Trainer that this one is mixed into; that of transformers, if no other."""
        base: type[Any] = cls.__mro__[cls.__mro__.index(Checkpoints) + 1]
        return base

    @classmethod
    def _has_own_loss(cls) -> bool:
        """Whether the Trainer below has a loss other than that of transformers."""
        return cls._base().compute_loss is not transformers.Trainer.compute_loss

    def _labels_in(self, batch: Any) -> dict[str, Any]:
        """The entries of a batch that are labels, by name; empty where it has none."""
        return {name: batch[name] for name in self.label_names if name in batch}

    def _loss_of(self, plain: DataLoader[Any], compute: Any, examples: list[Any]) -> torch.Tensor:
        """The loss of some examples in one batch, as a training step computes it."""
        batch = self._prepare_inputs(plain.collate_fn(examples))
        if self.example_rows.examples_in(batch) != len(examples):
            raise InvalidInputError(
                "The 'data_collator' must give a row for each example. "
                f"Got {self.example_rows.examples_in(batch)} for {len(examples)}; "
                "to train on packed texts, make each pack an example of the dataset, which is then what is protected."
            )
        processes, by_example = self.accelerator.num_processes, self._labels_in(batch)
        with nullcontext() if by_example or processes == 1 else Alone(self._base().__name__):
            loss: torch.Tensor = compute(self.model, batch)
        return loss

    def _check_lengths(self) -> None:
        """Refuse arguments whose batch size or number of steps are not those of the plan."""
        sampler = self.engine.mechanism.sampler
        promised = sampler.promises(len(self.train_dataset), self._attribution)
        check_batch_size(self.given, promised.expected_batch_size, self.engine._batch_size)
        check_steps(self.given, sampler.steps, promised.steps_per_epoch)

    def _plain_loader(self) -> DataLoader[Any]:
        """What transformers hands to accelerate, without batches of its own."""
        description = "training"
        dataset: Any = self.train_dataset
        collate = self.data_collator
        if hasattr(dataset, "remove_columns"):
            dataset = self._remove_unused_columns(dataset, description=description)
        else:
            collate = self._get_collator_with_removed_columns(collate, description=description)
        workers = self.args.dataloader_num_workers
        return DataLoader(
            dataset,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type != "cpu",
            persistent_workers=self.args.dataloader_persistent_workers,
            multiprocessing_context=self.args.dataloader_multiprocessing_context,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=self.args.process_index),
        )

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward, in parts; all but the last are clipped and summed here, the last by the step itself."""
        del num_items_in_batch
        rows, examples = self.example_rows.examples_in(inputs), 0
        self.optimizer.zero_grad()
        largest = self.args.per_device_train_batch_size
        passes = -(-rows // largest)
        if is_sharded(model):
            passes, another = passes_of_all(passes, self.example_rows.part(inputs, 0, 1), self.args.device)
        if not passes:
            self.optimizer.leave_no_examples()
        total = torch.zeros((), device=self.args.device)
        for first in range(0, passes * largest, largest):
            if first:
                if not self._exact:  # whose optimizer knows which physical batch is the last of its step
                    self.optimizer.signal_skip_step()
                self.optimizer.step()
                self.optimizer.zero_grad()
            if first >= rows:
                self._keep_company(model, another)
                continue
            losses = self._losses_of_part(model, self.example_rows.part(inputs, first, first + largest))
            self.example_rows.join(self.optimizer.trained)
            total += losses.sum()
            examples += len(losses)
        return mean_over_all(total, examples, self.accelerator)

    def _keep_company(self, model: Any, part: Mapping[str, Any]) -> None:
        """Forward and backward of an example that does not count, as other processes run the model; see ``shards``."""
        criterion = self._criterion
        with patch.object(self, "_criterion", lambda losses: criterion(losses * 0.0)):
            super().training_step(model, part)
        self.optimizer.count_no_examples()

    def _losses_of_part(self, model: Any, part: Mapping[str, Any]) -> torch.Tensor:
        """Forward and backward of a physical batch; the losses of its examples, which come before what fills it up."""
        if not self._exact:
            return super().training_step(model, part).expand(self.example_rows.examples_in(part))
        with without_random_numbers(self.args.device):
            super().training_step(model, part)
        return self._losses[: self.optimizer.batches.pieces[0].examples]

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean of the losses of the examples; for the two backward passes of ghost clipping, all of them."""
        del num_items_in_batch
        labels = self._labels_in(inputs)
        if not labels and self._has_own_loss():
            with figures_of_one(self.accelerator) if model.training else nullcontext():
                return super().compute_loss(model, inputs, return_outputs=return_outputs)
        if not labels:
            raise InvalidInputError(f"The batches must have labels, named {', '.join(self.label_names)}.")
        outputs = model(**{name: entry for name, entry in inputs.items() if name not in labels})
        losses = checked(self.example_losses(outputs, labels), self.example_rows.examples_in(inputs))
        self._losses = losses.detach()
        if self._criterion is not None and model.training and torch.is_grad_enabled():
            loss = self._criterion(losses)
        else:
            loss = losses.mean()
        return (loss, outputs) if return_outputs else loss

    def _get_num_items_in_batch(self, *unused: Any) -> None:
        """Nothing: the number of labelled tokens in a batch says something about its examples."""

    def _clip_grad_norm(self, model: Any) -> None:
        """Nothing: what is in the gradients before the optimizer's step is not private, and not what is used."""

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> None:
        """Nothing, so that the norm of a gradient that is not private is in no log."""

    def _run_epoch(self, **options: Any) -> None:
        """As transformers does; a training that continues from its last checkpoint has nothing left to do."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**options)

    def hyperparameter_search(self, *unused: Any, **options: Any) -> Any:
        """Refuses: every trial is a training of its own, and choosing among them costs privacy too."""
        raise UnsupportedError(
            "A search trains several models, each of which needs a Trainer of its own; hockeystick.compose says what "
            "all of them together, or the best of them, cost."
        )


def private(base: type[Any]) -> type[Any]:
    """A Trainer as ``base`` is, such as ``trl.SFTTrainer``, with the batches and the noise of a plan.

    It takes the arguments of :class:`Trainer` and those of ``base``. The losses are those of :class:`Trainer` where
    batches have labels, if they agree with those of ``base`` on single examples; otherwise they are those of ``base``,
    which has to take the mean over its examples.

    Args:
        base: a subclass of ``transformers.Trainer``.

    Raises: InvalidInputError for another class.
    """
    if not (isinstance(base, type) and issubclass(base, transformers.Trainer)) or issubclass(base, Trainer):
        raise InvalidInputError(f"The 'base' argument must be a Trainer of transformers or TRL. Got {base!r} instead.")
    return type(f"Private{base.__name__}", (Trainer, base), {"__module__": __name__, "__doc__": Trainer.__doc__})


class _Position(TrainerCallback):
    """Tells the epoch from the run, as the first pass after a resume begins within one."""

    def __init__(self, engine: PrivacyEngine) -> None:
        self.engine = engine

    def on_step_end(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        """Set the epoch of the Trainer's state, in which it would count from the resume on."""
        state.epoch = self.engine.run.step / self.engine.run.steps_per_epoch


def _base_of(model: Any) -> Any:
    """The model of transformers below the adapters of peft."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
