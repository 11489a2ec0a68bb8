"""Opacus' privacy engine for a plan: its batches, its noise, and the certificate of what was run."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import opacus
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers import SimpleDistributedPerLayerOptimizer, get_optimizer_class
from opacus.validators.errors import UnsupportedModuleError
from torch import distributed
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from hockeystick.calibration.opacus import check_accountant
from hockeystick.calls import called
from hockeystick.certificate import Certificate
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.files import replacing
from hockeystick.mechanism import Mechanism
from hockeystick.noise.noise_stream import check_options as check_noise
from hockeystick.noise.rows import MAX_BYTES, Rows
from hockeystick.plan import Plan, Target
from hockeystick.samplers import Attribution
from hockeystick.samplers.base import MAX_STEPS
from hockeystick.samplers.promises import Promises
from hockeystick.strategies import Identity, Strategy
from hockeystick.training.engine import Engine
from hockeystick.training.exact_sums import rows_of
from hockeystick.training.invariance import Invariance
from hockeystick.training.run import Run
from hockeystick.training.seeds import fresh_generator
from hockeystick.training.torch.accounting import Accounting
from hockeystick.training.torch.adaptive import check_clipping, noisy_parameters
from hockeystick.training.torch.adaptive_clipping import check_adaptive_clipping, check_options
from hockeystick.training.torch.collation import CollateWithEmpty
from hockeystick.training.torch.device_rows import placed
from hockeystick.training.torch.exact import check_exact, check_invariance, clipping_steps
from hockeystick.training.torch.exact_shards import EXACT_CLASSES, ExactCriterion
from hockeystick.training.torch.ghost import CLASSES, ghost_model
from hockeystick.training.torch.guards import (
    GhostCriterion,
    check_criterion,
    check_modules,
    check_optimizer,
    check_parameters,
    checked_clip_norm,
    in_our_words,
    trained_by,
)
from hockeystick.training.torch.kept_inputs import SampleHooks
from hockeystick.training.torch.loader import (
    BatchSampler,
    Drawn,
    batches_of_epoch,
    check_batch_size,
    check_dataset,
    checked,
    drawn_by,
    loader_of,
    sampler_table,
    warn_instead,
)
from hockeystick.training.torch.noise import size_of
from hockeystick.training.torch.optimizer import on_run
from hockeystick.training.torch.shards import part_of

CHECKED = ("noise_is_added", "public_normaliser", "clipping_norm", "batches_in_step", "norms")
"""What the loader and the optimizer check, or do."""
WRAPPED = (torch.nn.parallel.DistributedDataParallel, DifferentiallyPrivateDistributedDataParallel)
"""What makes Opacus take its optimizers for several processes, also where there is one."""
RANDOM = "torch_random_state"
"""The entry of a checkpoint for torch's own generator, which dropout draws from."""
RANDOM_CUDA = "torch_cuda_random_states"
"""The entry for those of all CUDA devices, where they are used."""


class PrivacyEngine(Engine, opacus.PrivacyEngine):
    """Takes the place of ``opacus.PrivacyEngine``; the training loop stays as it is.

    >>> import hockeystick as hs
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(torch.randn(60, 4), torch.randint(2, (60,)))
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> plan = hs.Mechanism(sampler=hs.BallsInBins(bins=6, epochs=2), noise_multiplier=2.0)
    >>> engine = PrivacyEngine(plan)
    >>> model, optimizer, loader = engine.make_private(
    ...     module=model, optimizer=optimizer, data_loader=DataLoader(data), max_grad_norm=1.0
    ... )
    >>> for epoch in range(2):
    ...     for x, y in loader:
    ...         optimizer.zero_grad()
    ...         torch.nn.functional.cross_entropy(model(x), y).backward()
    ...         optimizer.step()
    >>> engine.certificate(delta=1e-5).epsilon.upper < 6.0
    True

    Without a plan, ``make_private`` makes one from the loader, as Opacus does: Poisson batches at the rate of one over
    its length, and as many steps as are taken; certificates are about the executed steps. ``epochs`` plans the steps,
    and other samplers and strategies need it. A plan with a target and no noise is calibrated once, in
    ``make_private``.

    The loader gives the batches of the plan's sampler, empty ones included. The optimizer is the class that Opacus has
    for the clipping and the gradient mode that are asked for (flat, per layer, ghost, distributed), with rows of
    ``C^{-1} z`` for its noise and the plan's expected batch size for its divisor. ``BatchMemoryManager`` works as with
    Opacus, and changes nothing about the mechanism. ``optimizer.state_dict()`` holds the run, so that a training that
    was saved with it continues with the same batches and noise.

    With ``exact=True``, or a plan that says so, gradients are clipped and rounded to whole numbers, and sums and noise
    are whole numbers too, so the certificate covers the bits (``docs/theory/exact-sums.md``). The loader then gives
    physical batches of one size, padded with zeros. Each takes one ``optimizer.step()``; the last is a step of the run.

    Args:
        plan: a Plan or a Mechanism; None for one that follows from the loader.
        sampler: without a plan, the kind of sampler, or a plan's ``[sampler]`` table; "poisson" by default.
        strategy: without a plan, the matrix C; independent noise by default.
        epochs: without a plan, passes over the data; None for a run without an end.
        accountant: for calls that are written for Opacus; epsilon is hockeystick's, whatever it says.
        rng: seeds batches and noise; None for a fresh seed of the operating system.
        secure_mode: take the noise from AES-256 under a key of the operating system, in one process.
        dtype: of the noise, ``numpy.float32`` or ``numpy.float64``, whatever the type of the parameters.
        attribution: of the examples to users, where the sampler has users.
        max_bytes, rows: as for :func:`hockeystick.noise.stream`, which says where the noise keeps its rows.
        exact: whether sums and noise are in whole numbers; as the plan says by default.
        physical_batch_size: rows of a physical batch of exact sums, on every process; by default the batch size where
            it is fixed, else a quarter of the expected one, up to the next multiple of 32.
        invariance: the audit of the model at that size, from :func:`hockeystick.audit.invariance`, for the record; or
            rho, by how much of the clipping norm the integers of all others change with one example: the noise covers
            that, and is ``1 + rho`` times as large.

    Raises: InvalidInputError for what is neither a Plan nor a Mechanism, for one beside what makes another, for what
    no plan or noise has, an accountant that Opacus has not, and for ``exact=False`` beside a plan that is exact.
    """

    @called("hs.torch.PrivacyEngine(plan)")
    def __init__(
        self,
        plan: Plan | Mechanism | None = None,
        *,
        sampler: str | Mapping[str, Any] | None = None,
        strategy: Strategy | None = None,
        epochs: float | None = None,
        accountant: str | None = None,
        rng: np.random.Generator | None = None,
        secure_mode: bool = False,
        dtype: Any = np.float32,
        attribution: Attribution | None = None,
        max_bytes: int = MAX_BYTES,
        rows: Rows | None = None,
        exact: bool | None = None,
        physical_batch_size: int | None = None,
        invariance: Invariance | float | None = None,
    ) -> None:
        self._exact, self._physical, self._invariance = exact, physical_batch_size, invariance
        super().__init__(plan)
        check_accountant(accountant)
        asked = {"sampler": sampler, "strategy": strategy, "epochs": epochs}
        for name, value in asked.items():
            if plan is not None and value is not None:
                raise InvalidInputError(f"The {name!r} argument must be left out, as the plan says it.")
        self._asked = checked(asked)
        noise = {"rng": rng, "secure": secure_mode, "dtype": dtype, "max_bytes": max_bytes, "rows": rows}
        check_noise(bool(exact) if self._mechanism is None else self._mechanism.exact, **noise)
        self._options = noise | {"attribution": attribution}
        self._asked_target: Target | None = None
        self.accountant = Accounting(self)
        self.secure_mode, self.secure_rng, self.dataset = False, None, None  # Opacus' own, which are not used

    def _adopt(self, plan: Plan | Mechanism) -> None:
        """Take what a plan says, with whole numbers where the engine was asked for them."""
        super()._adopt(plan)
        if self._exact is False and self.mechanism.exact:
            raise InvalidInputError("The 'exact' argument must be True or left out, as the plan's noise is exact.")
        if self._exact and not self.mechanism.exact:
            fields = {name: getattr(self.mechanism, name) for name in type(self.mechanism).model_fields}
            self._mechanism = Mechanism(**fields | {"exact": True})

    @called("engine.make_private(module=model, optimizer=sgd, data_loader=data, noise_multiplier=1, max_grad_norm=1.0)")
    def make_private(
        self,
        *,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: Any,
        max_grad_norm: float | list[float],
        noise_multiplier: float | None = None,
        clipping: str = "flat",
        grad_sample_mode: str = "hooks",
        batch_first: bool = True,
        poisson_sampling: bool = True,
        rand_on_empty: bool = False,
        noise_generator: Any = None,
        **options: Any,
    ) -> Any:
        """Model, optimizer and loader (with ghost clipping model, optimizer, criterion and loader) of the run.

        Args:
            module, optimizer, max_grad_norm, clipping, grad_sample_mode, batch_first, options: as Opacus has them.
            data_loader: gives the dataset, the collation and the workers. Where it shuffles, shares out or drops, the
                plan's batches take the place of that, and a warning says so.
            noise_multiplier: the plan's, or for a plan that has neither noise nor target.
            poisson_sampling: for calls that are written for Opacus; a warning says what is drawn in its place.
            rand_on_empty, noise_generator: for calls that are written for Opacus; must be left out.

        Raises: InvalidInputError for a second call, for a dataset without length or of another size than the plan's,
        a loader with batches of another law or size, no noise and no target, an optimizer without parameters, without
        some that are trained or with some of another module, a clipping norm that is not positive and finite, a
        criterion that divides by more than the number of examples, and another noise multiplier; UnsupportedError for
        adaptive clipping in other modes than hooks and ghost, in several processes or with an adaptive optimiser,
        expanded weights, a module of ``fully_shard`` without ``grad_sample_mode="ghost_fsdp"``, ghost clipping by
        layers, secure noise in several processes, complex parameters, frozen layers that mix examples, tied layers with
        FSDP, adaptive optimisers where per-sample gradients are not what they need, and models that Opacus refuses.
        """
        if self._run is not None:
            raise InvalidInputError("This engine has a run already; a second make_private needs an engine of its own.")
        if rand_on_empty or noise_generator is not None:
            raise InvalidInputError(
                "The 'rand_on_empty' and 'noise_generator' arguments must be left out; batches without examples stay "
                "empty, and the engine's rng seeds batches and noise."
            )
        if (grad_sample_mode == "ghost_fsdp") != isinstance(module, FSDPModule):
            raise UnsupportedError(
                "A module of fully_shard needs grad_sample_mode='ghost_fsdp', the one mode that Opacus has for it, and "
                "no other module may have it."
            )
        if clipping == "per_layer" and "ghost" in grad_sample_mode:
            raise UnsupportedError(
                "Ghost clipping clips all parameters together; per-layer clipping needs grad_sample_mode 'hooks' or "
                f"'functorch'. Got {grad_sample_mode!r} instead."
            )
        if grad_sample_mode == "ew":
            raise UnsupportedError("Expanded weights cannot take batches without examples; use 'hooks' or 'functorch'.")
        check_optimizer(optimizer, module)
        trained = trained_by(optimizer, module)
        check_parameters(trained)
        max_grad_norm = checked_clip_norm(max_grad_norm, clipping, len(trained))
        check_options(options, super().make_private)
        if "criterion" in options:
            check_criterion(options["criterion"], options.get("loss_reduction", "mean"), grad_sample_mode)
        check_modules(module, grad_sample_mode)
        check_clipping(optimizer, clipping, grad_sample_mode, distributed=_is_distributed(module))
        try:
            self.validate(module=module, optimizer=None, data_loader=None)
        except UnsupportedModuleError as error:
            raise in_our_words(error) from error
        drawn = self._describe(data_loader)
        size = len(data_loader.dataset)
        ranks = distributed.get_world_size() if _is_distributed(module) else 1
        rank = distributed.get_rank() if ranks > 1 else 0
        promises = self.mechanism.sampler.promises(size, self._options["attribution"])
        physical = self._physical_rows(promises, ranks, module, clipping, grad_sample_mode)
        collate = CollateWithEmpty(data_loader, physical)
        if self._plan is not None:
            check_batch_size(promises, drawn.batch_size, self._batch_size, ranks)
        self._leads, self._ranks = rank == 0, ranks
        self._settle(noise_multiplier, self._asked_target)  # may take long, so all that can be wrong comes before
        if clipping == "adaptive":
            check_adaptive_clipping(options, self.mechanism.sigma, module, optimizer, grad_sample_mode)
        self._names = {parameter: name for name, parameter in module.named_parameters()}
        run = self._new_run(size, noisy_parameters(optimizer, trained, clipping), ranks)
        batches = BatchSampler(run, rank=rank, world_size=ranks, epochs=self._epochs, physical=physical)
        if rank == 0:
            warn_instead(batches, [*drawn.instead, *["poisson_sampling=False"] * (not poisson_sampling)])
        self._loader = loader_of(data_loader, batches, collate)
        made = super().make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=self.mechanism.sigma,
            max_grad_norm=max_grad_norm,
            clipping=clipping,
            grad_sample_mode=grad_sample_mode,
            batch_first=batch_first,
            **options,
        )
        model, optimizer = made[:2]
        optimizer.attach(run, batches, model, self._names)
        if physical is not None:
            optimizer.sum_exactly(clipping_steps(run, ranks, self.rho or 0.0), physical)
        self._run, self._optimizer = run, optimizer
        return made

    def _physical_rows(
        self, promises: Promises, ranks: int, module: torch.nn.Module, clipping: str, grad_sample_mode: str
    ) -> int | None:
        """Rows of the physical batches of exact sums; None for sums in floating point. Refuses what cannot be exact."""
        if not self.mechanism.exact:
            for name, value in (("physical_batch_size", self._physical), ("invariance", self._invariance)):
                if value is not None:
                    raise InvalidInputError(f"The {name!r} argument is for exact sums; give exact=True as well.")
            return None
        check_exact(module, clipping, grad_sample_mode)
        physical = rows_of(self._physical, promises, ranks)
        check_invariance(self._invariance, physical, module, grad_sample_mode)
        return physical

    def _describe(self, loader: Any) -> Drawn:
        """What a loader draws; with the plan that is given, or the one that the loader makes."""
        if self._plan is not None:
            self._adopt(self._plan)  # anew, where an earlier call was refused
        size = check_dataset(loader, self._num_examples if self._plan is not None else None)
        drawn = drawn_by(loader)
        if self._plan is None:
            self._plan_for(loader, size)
        return drawn

    def _plan_for(self, loader: Any, num_examples: int) -> None:
        """Make the plan that a loader and the engine's arguments are; raises InvalidInputError where they make none.

        Without epochs the plan has more steps than anybody takes, all of them alike.
        """
        options = sampler_table(self._asked.get("sampler", "poisson"))
        strategy, epochs = self._asked.get("strategy", Identity()), self._asked.get("epochs")
        self.has_end = epochs is not None
        if not self.has_end and (options != {"kind": "poisson"} or not isinstance(strategy, Identity)):
            raise InvalidInputError(
                "The 'epochs' argument has to be given for samplers other than Poisson and for correlated noise; only "
                "independent, identical steps can go on without an end."
            )
        length = {"epochs": epochs} if self.has_end else {"steps": MAX_STEPS}
        data = {"num_examples": num_examples, "batches_per_epoch": batches_of_epoch(loader), **length}
        self._adopt(Plan.parse({"data": data, "sampler": options}).model_copy(update={"strategy": strategy}))

    def _calibrated(self, epsilon: float, delta: float) -> Certificate:
        """The certificate of the calibration, which the first of several processes makes for all of them."""
        certificates = [super()._calibrated(epsilon, delta) if self._leads else None]
        if self._ranks > 1:
            distributed.broadcast_object_list(certificates)
        certificate: Certificate = certificates[0]  # type: ignore[assignment]
        return certificate

    def _new_run(self, num_examples: int, trained: list[Any], ranks: int) -> Run:
        """The run of this process: with all of the noise, with that of its shards, or with none."""
        shape = size_of(trained)
        if ranks == 1:
            options = placed(trained, self._options)
            return Run(self.mechanism, num_examples=num_examples, shape=shape, **options)
        if self._options["secure"]:
            raise UnsupportedError(
                "Secure noise is for one process, as the secrets of the run would cross the network in the clear; "
                "leave out secure_mode in a distributed run."
            )
        # All processes draw from the generator of the first: the same batches everywhere.
        generators = [fresh_generator() if self._options["rng"] is None else self._options["rng"]]
        distributed.broadcast_object_list(generators)
        options = self._options | {"rng": generators[0]}
        if any(isinstance(parameter, DTensor) for parameter in trained):
            return Run(self.mechanism, num_examples=num_examples, shape=shape, part=part_of(trained), **options)
        # The noise is added in the first alone.
        first = distributed.get_rank() == 0
        return Run(self.mechanism, num_examples=num_examples, shape=shape if first else None, **options)

    def _prepare_model(self, module: Any, *, grad_sample_mode: str = "hooks", **options: Any) -> Any:
        """Opacus' model; for ghost clipping with norms whose error is proved, without a wrapper with hooks of ours."""
        if grad_sample_mode == "hooks" and not options["wrap_model"]:
            return SampleHooks(module, batch_first=options["batch_first"], loss_reduction=options["loss_reduction"])
        if "ghost" not in grad_sample_mode:
            return super()._prepare_model(module, grad_sample_mode=grad_sample_mode, **options)
        self.validate(module=module, optimizer=None, data_loader=None)
        wrapped = options.pop("wrap_model")
        kind = EXACT_CLASSES[wrapped] if self.mechanism.exact else CLASSES[grad_sample_mode, wrapped]
        return ghost_model(kind, module, **options)

    def _prepare_data_loader(self, data_loader: Any, **options: Any) -> Any:
        """The loader of the run, in place of Opacus' Poisson loader."""
        del data_loader, options
        return self._loader

    def _prepare_optimizer(
        self,
        *,
        optimizer: Any,
        expected_batch_size: float,
        clipping: str = "flat",
        distributed: bool = False,
        grad_sample_mode: str = "hooks",
        noise_generator: Any = None,
        **options: Any,
    ) -> Any:
        """The class of Opacus for these options, on the run; its divisor is public."""
        del noise_generator, expected_batch_size  # Opacus rounds the second to a whole number
        batches = self._loader.batch_sampler
        like = "flat" if clipping == "adaptive" else clipping  # Opacus' own class for it divides by the batch's size
        if distributed and clipping == "per_layer":  # Opacus has two; the other one draws noise in hooks of gradients
            base = SimpleDistributedPerLayerOptimizer
        else:
            base = get_optimizer_class(clipping=like, distributed=distributed, grad_sample_mode=grad_sample_mode)
        return on_run(base, optimizer, clipping, exact=batches.physical is not None)(
            optimizer=optimizer,
            expected_batch_size=batches.run.expected_batch_size / batches.world_size,
            **options,
        )

    def _prepare_criterion(
        self, *, module: Any, optimizer: Any, criterion: Any, loss_reduction: str = "mean", **options: Any
    ) -> Any:
        """Opacus' criterion for ghost clipping, guarded."""
        del options
        kind = ExactCriterion if self.mechanism.exact else GhostCriterion
        return kind(module, optimizer, criterion, loss_reduction)

    @called("engine.make_private_with_epsilon(target_epsilon=2.0, target_delta=1e-5, epochs=3, module=model, ...)")
    def make_private_with_epsilon(
        self, *, target_epsilon: float, target_delta: float, epochs: float | None = None, **options: Any
    ) -> Any:
        """:meth:`make_private` with the smallest noise that is certified for a target, which is calibrated once.

        Args:
            target_epsilon, target_delta: epsilon > 0 and delta in (0, 1); the plan's, where it has a target.
            epochs: passes over the data; the plan's, if they are given beside one.
            options: of :meth:`make_private`.

        Raises: as :meth:`make_private`; InvalidInputError for a plan with a noise multiplier of its own, for another
        target or another number of epochs than the plan's, and without epochs where there is no plan.
        """
        target = Target.parse({"epsilon": target_epsilon, "delta": target_delta})
        if self._plan is not None:
            self._check_epochs(epochs, options.get("data_loader"))
        elif epochs is None and "epochs" not in self._asked:
            raise InvalidInputError("The 'epochs' argument has to be given, as there is no plan.")
        elif epochs is not None and self._asked.setdefault("epochs", epochs) != epochs:
            raise InvalidInputError(
                f"The 'epochs' argument must be the engine's, {self._asked['epochs']!r}. Got {epochs!r} instead."
            )
        self._asked_target = target
        try:
            return self.make_private(**options)
        finally:
            self._asked_target = None

    def _check_epochs(self, epochs: float | None, loader: Any) -> None:
        """Refuse other epochs than the plan's; a plan in steps has those that its steps come closest to."""
        if epochs is None:
            return
        planned = self._epochs
        if planned is None:
            size = check_dataset(loader, self._num_examples)
            promised = self.mechanism.sampler.promises(size, self._options["attribution"])
            near = abs(epochs * promised.epoch_length - self.mechanism.sampler.steps) < 1
            planned = epochs if near else float(self.mechanism.sampler.steps / promised.epoch_length)
        if epochs != planned:
            raise InvalidInputError(
                f"The 'epochs' argument must be the plan's, {planned:g}, or be left out. Got {epochs!r} instead."
            )

    @property
    def also_checked(self) -> tuple[str, ...]:
        """What the optimizer checks; without the batches' sizes where workers or Opacus' batch manager hide them, and
        without norms where ghost clipping rounds gradients after them, or layers' rows were not tried.
        """
        unseen = set() if self._optimizer.saw_batches else {"batches_in_step"}
        if (self._optimizer.ghost and not self.mechanism.exact) or self._optimizer.untried:
            unseen |= {"norms"}
        return (
            *(name for name in CHECKED if name not in unseen),
            *(("exact_sums", "one_shape") if self.mechanism.exact else ("finite_gradients",)),
            *(("invariance_audited",) if isinstance(self._invariance, Invariance) else ()),
        )

    @property
    def rho(self) -> float | None:
        """The number that was given as ``invariance``."""
        return self._invariance if isinstance(self._invariance, int | float) else None

    def save_checkpoint(self, *, path: Any, module: Any, optimizer: Any = None, **options: Any) -> None:
        """As Opacus does, with the run and torch's generators, whole or not at all; only the owner can read the file.

        Raises: InvalidInputError without the optimizer, whose state holds the run.
        """
        if optimizer is None:
            raise InvalidInputError("The 'optimizer' argument has to be given; its state holds the run.")
        more = (options.pop("checkpoint_dict", None) or {}) | {RANDOM: torch.get_rng_state()}
        if torch.cuda.is_initialized():
            more[RANDOM_CUDA] = torch.cuda.get_rng_state_all()
        saved = {"module": module, "optimizer": optimizer, "checkpoint_dict": more, **options}
        if not isinstance(path, str | os.PathLike):
            super().save_checkpoint(path=path, **saved)
            return
        with replacing(path, secret=True) as file:  # type: ignore[arg-type]
            super().save_checkpoint(path=file, **saved)

    def load_checkpoint(self, *, path: Any, module: Any, optimizer: Any = None, **options: Any) -> Any:
        """Continue from :meth:`save_checkpoint`; raises InvalidInputError for a checkpoint of another plan."""
        if optimizer is None:
            raise InvalidInputError("The 'optimizer' argument has to be given; its state holds the run.")
        checkpoint = super().load_checkpoint(path=path, module=module, optimizer=optimizer, **options)
        if RANDOM in checkpoint:  # on the CPU, wherever map_location put it
            torch.set_rng_state(checkpoint[RANDOM].cpu())
        if RANDOM_CUDA in checkpoint and torch.cuda.device_count() == len(checkpoint[RANDOM_CUDA]):
            torch.cuda.set_rng_state_all([state.cpu() for state in checkpoint[RANDOM_CUDA]])
        return checkpoint


def _is_distributed(module: Any) -> bool:
    """Whether several processes train the module together."""
    return isinstance(module, (*WRAPPED, FSDPModule)) and distributed.get_world_size() > 1
