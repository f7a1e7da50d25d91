# The random generators that preloaded modules make.
#
# In a Python of its own, each task has generators that the system's entropy has seeded, and
# generators to which a module gives a seed while it is imported. Forks share both. So a fork
# seeds the former anew and leaves the latter as they are. The two look alike afterwards:
# which are which is recorded while modules are imported, at the one place in each library
# through which generators get entropy.
import gc
import sys
from _weakref import ref


def subclasses_of(kind):
    """A class and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses_of(below)


class Generators:
    """What has to be done about generators in each fork."""

    def __init__(self):
        self.renewals = []
        self.patches = []
        #: What decides, at the end, about the libraries that were seen.
        self.settles = []
        #: Instances of `random.Random` that have no seed of their own.
        self.randoms = {}
        #: What numpy was given as entropy; and what is known of its global generator besides.
        self.entropies = set()
        self.numpy_has_seed = None
        #: The seed that torch had from entropy, and what gets another one.
        self.torch_seed = None
        self.renew_torch = None
        self.watched = {
            "random": self.watch_random,
            "numpy.random.bit_generator": self.watch_entropy_of_numpy,
            "numpy.random.mtrand": self.watch_numpy,
            "torch": self.watch_torch,
        }

    def watch(self):
        """Begins to record."""
        sys.meta_path.insert(0, self)
        for name in self.watched:
            if name in sys.modules:
                self.imported(sys.modules[name])

    def imported(self, module):
        try:
            self.watched[module.__name__](module)
        except AttributeError:
            # Another module of that name.
            pass

    def find_spec(self, name, path=None, target=None):
        """Finds what others find, to see it before the module that imports it goes on."""
        if name not in self.watched:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            execute(module)
            if module.__name__ == name:
                del loader.exec_module
                self.imported(module)

        loader.exec_module = exec_module
        return spec

    def patch(self, owner, name, value, *copies):
        """Replaces what is called `name` until all is settled, also in modules that copy it."""
        self.patches.append((owner, name, getattr(owner, name), copies))
        for place in (owner, *map(sys.modules.get, copies)):
            if hasattr(place, name):
                setattr(place, name, value)

    def settle(self):
        """Ends recording: decides what is to be done in each fork."""
        sys.meta_path.remove(self)
        for owner, name, value, copies in self.patches:
            for place in (owner, *map(sys.modules.get, copies)):
                if hasattr(place, name):
                    setattr(place, name, value)
        for settle, module in self.settles:
            settle(module)

    def renew(self):
        """Gives this process what its own Python would have."""
        for renewal in self.renewals:
            renewal()

    # -- random ------------------------------------------------------------------------

    def watch_random(self, module):
        kind, known = module.Random, module._inst
        seed, setstate = kind.seed, kind.setstate
        self.randoms[id(known)] = ref(known)

        def watched_seed(generator, a=None, *args, **kwargs):
            seed(generator, a, *args, **kwargs)
            if a is None:
                self.randoms[id(generator)] = ref(generator)
            else:
                self.randoms.pop(id(generator), None)

        def watched_setstate(generator, state):
            setstate(generator, state)
            self.randoms.pop(id(generator), None)

        self.patch(kind, "seed", watched_seed)
        self.patch(kind, "setstate", watched_setstate)
        self.patch(module, "seed", known.seed)
        self.patch(module, "setstate", known.setstate)
        self.settles.append((self.settle_random, module))

    def settle_random(self, module):
        known, seed = module._inst, module.Random.seed
        if id(known) not in self.randoms:
            # Python itself seeds it anew in a fork.
            state = known.getstate()
            self.renewals.append(lambda: known.setstate(state))
        for reference in self.randoms.values():
            generator = reference()
            if generator is not None and generator is not known:
                self.renewals.append(lambda generator=generator: seed(generator))

    # -- numpy -------------------------------------------------------------------------

    def watch_entropy_of_numpy(self, module):
        randbits = module.randbits

        def watched(bits):
            entropy = randbits(bits)
            self.entropies.add(entropy)
            return entropy

        self.patch(module, "randbits", watched)

    def watch_numpy(self, module):
        sequence = module._rand._bit_generator._seed_seq
        self.entropies.add(getattr(sequence, "entropy", None))
        seed, set_state = module.seed, module.set_state

        def watched_seed(*args, **kwargs):
            seed(*args, **kwargs)
            self.numpy_has_seed = [*args, *kwargs.values()] not in ([], [None])

        def watched_set_state(*args, **kwargs):
            set_state(*args, **kwargs)
            self.numpy_has_seed = True

        self.patch(module, "seed", watched_seed, "numpy.random")
        self.patch(module, "set_state", watched_set_state, "numpy.random")
        self.settles.append((self.settle_numpy, module))

    def has_entropy(self, sequence):
        entropy = getattr(sequence, "entropy", None)
        return isinstance(entropy, int) and entropy in self.entropies

    def settle_numpy(self, module):
        known = sys.modules["numpy.random.bit_generator"]
        # Kinds of others may be made in another way.
        sequences, generators, states = (
            {one for one in subclasses_of(kind) if one.__module__.startswith("numpy.random.")}
            for kind in (known.SeedSequence, known.BitGenerator, module.RandomState)
        )
        settled = None
        if self.numpy_has_seed is not None:
            settled = module._rand._bit_generator
            if not self.numpy_has_seed:
                self.renewals.append(module.seed)
        for thing in gc.get_objects():
            kind = type(thing)
            if kind in generators and thing is not settled and self.has_entropy(thing._seed_seq):
                self.renewals.append(lambda thing=thing: renew_bits(thing))
            elif kind in sequences and self.has_entropy(thing):
                self.renewals.append(lambda thing=thing: renew_sequence(thing))
            elif kind in states and thing._bit_generator is not settled:
                if self.has_entropy(thing._bit_generator._seed_seq):
                    forget_half_of_pair(thing)

    # -- torch -------------------------------------------------------------------------

    def watch_torch(self, module):
        self.torch_seed = module.initial_seed()
        # CUDA's generators get entropy when a task first uses them.
        self.renew_torch = module.default_generator.seed
        seed = module.seed

        def watched_seed():
            self.torch_seed = number = seed()
            # CUDA's will get this one, unless it is told another.
            self.renew_torch = seed
            return number

        self.patch(module, "seed", watched_seed, "torch.random")
        self.settles.append((self.settle_torch, module))

    def settle_torch(self, module):
        if module.initial_seed() == self.torch_seed:
            self.renewals.append(self.renew_torch)


def renew_bits(generator):
    generator.state = type(generator)().state


def renew_sequence(sequence):
    sequence.__init__(
        spawn_key=sequence.spawn_key,
        pool_size=sequence.pool_size,
        n_children_spawned=sequence.n_children_spawned,
    )


def forget_half_of_pair(state):
    """Normal numbers are made in pairs: the second of one that was made before is nobody's."""
    known = state.get_state(legacy=False)
    if known["has_gauss"]:
        known["has_gauss"], known["gauss"] = 0, 0.0
        state.set_state(known)
