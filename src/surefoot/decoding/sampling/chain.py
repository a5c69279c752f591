"""The samplers of one sequence, applied in their order; each stands in a module of its own."""

from collections.abc import Sequence as Series

from surefoot.decoding.sampling import truncation
from surefoot.decoding.sampling.breakers import Breakers
from surefoot.decoding.sampling.choice import Choice
from surefoot.decoding.sampling.dry import Dry
from surefoot.decoding.sampling.mirostat import Mirostat
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.penalties import Penalties
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.sampling.temperature import COLDEST, fixed_temperature, temperature
from surefoot.decoding.sampling.typical import typ_p
from surefoot.decoding.sampling.xtc import xtc


class Chain:
    """Shapes distributions, and follows the text where a sampler looks at it.

    Args:
        sampling: the parameters.
        history: the tokens so far.
        breakers: what DRY's repeats do not reach across.

    Attributes:
        greedy: whether nothing is drawn. As in llama.cpp, a temperature of 0 does not make it so
            if temperature is none of the samplers, or varies with the entropy.
    """

    def __init__(self, sampling: Sampling, history: Series[int], breakers: Breakers) -> None:
        self._sampling = sampling
        self._penalties = Penalties(sampling, history)
        self._dry = Dry(sampling, history, breakers)
        self.mirostat = Mirostat(sampling)
        fixed = "temperature" in sampling.samplers and sampling.dynatemp_range <= 0
        self.greedy = sampling.temperature < COLDEST and (fixed or self.mirostat.active)
        self._greedy_samplers = self._that_move_the_top()

    def shape(self, pool: Pool, position: int, vocabulary_size: int) -> None:
        """Apply all samplers; with mirostat, temperature and nothing else."""
        if self.mirostat.active:
            fixed_temperature(pool, self._sampling)
            self.mirostat.apply(pool, vocabulary_size)
            return
        for name in self._sampling.samplers:
            self._apply(name, pool, position)
        pool.spread()

    def lift_the_top(self, pool: Pool, position: int) -> None:
        """Apply what may make another token the most likely one."""
        for name in self._greedy_samplers:
            self._apply(name, pool, position)

    def advance(self, choice: Choice) -> None:
        """Take note of the choice that was committed."""
        self._penalties.advance(choice.token)
        self._dry.advance(choice.token)
        if choice.surprise is not None:
            self.mirostat.advance(choice.surprise)

    def _apply(self, name: str, pool: Pool, position: int) -> None:
        match name:
            case "penalties":
                self._penalties.apply(pool)
            case "dry":
                self._dry.apply(pool)
            case "top_n_sigma":
                truncation.top_n_sigma(pool, self._sampling)
            case "top_k":
                truncation.top_k(pool, self._sampling)
            case "typ_p":
                typ_p(pool, self._sampling)
            case "top_p":
                truncation.top_p(pool, self._sampling)
            case "min_p":
                truncation.min_p(pool, self._sampling)
            case "xtc":
                xtc(pool, self._sampling, position)
            case "temperature":
                temperature(pool, self._sampling)

    def _that_move_the_top(self) -> tuple[str, ...]:
        """The samplers in front of temperature, which leaves one token, that have a say in which.

        These are all up to the last one that may make another token the most likely.
        """
        if not self.greedy or self.mirostat.active:
            return ()
        sampling = self._sampling
        moving = {
            "penalties": self._penalties.active,
            "dry": self._dry.active,
            "typ_p": sampling.typical_p < 1,
            "xtc": sampling.xtc_probability > 0 and sampling.xtc_threshold <= 0.5,
        }
        names = sampling.samplers[: sampling.samplers.index("temperature")]
        last = max((i for i, name in enumerate(names) if moving.get(name)), default=-1)
        return names[: last + 1]
