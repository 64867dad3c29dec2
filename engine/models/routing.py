"""How a mixture chooses a row's experts and weighs them, and the keys that say so. Not here: choosing (route.py)."""

from dataclasses import dataclass

from engine.errors import BadModelFile, UnsupportedModel
from engine.models.keys import Keys

SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN = 1, 2, 3  # expert_gating_func


@dataclass(frozen=True, slots=True)
class Routing:
    """A row goes to the experts with the greatest scores, of the `groups_used` best of `n_groups` groups.

    Scores are the softmax (or each one's sigmoid) of the router's logits, a group's score is the sum of its
    `group_best` best ones. Weights are scores, divided by the chosen ones' sum if `is_share`, times `factor`.
    """

    is_share: bool = True
    is_sigmoid: bool = False
    factor: float = 1.0
    n_groups: int = 1
    groups_used: int = 1
    group_best: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether the shorter op does it."""
        return not self.is_sigmoid and self.factor == 1.0 and self.groups_used == self.n_groups


USUAL = Routing()


def read_routing(keys: Keys, n_experts: int, n_used: int, gate: int = SOFTMAX) -> Routing:
    """What the keys say; `gate` is meant where they name none.

    Groups are scored as the papers that brought them do: by their best expert with softmax (DeepSeek-V2,
    arXiv:2405.04434), by their two best with sigmoid (DeepSeek-V3, arXiv:2412.19437). No key says which.
    """
    kind = keys.count("expert_gating_func", 0, 255, gate) or gate
    if kind not in (SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN):
        raise UnsupportedModel(f"{keys.prefix}expert_gating_func is {kind}; 1 (softmax), 2 (sigmoid) and 3 run")
    factor = keys.real("expert_weights_scale", -1.0, 1e6, 1.0)
    if factor < 0.0:
        raise BadModelFile(f"{keys.prefix}expert_weights_scale is {factor:g}; a number above 0 is expected")
    n_groups = keys.count("expert_group_count", 0, n_experts, 1) or 1
    used = keys.count("expert_group_used_count", 0, n_groups, n_groups) or n_groups
    best = 2 if kind == SIGMOID else 1
    if n_groups > 1 and (n_experts % n_groups or n_experts // n_groups < best or n_used > n_experts // n_groups * used):
        raise BadModelFile(
            f"{keys.prefix}expert_group_count {n_groups} and expert_group_used_count {used} do not fit {n_experts}"
            f" experts of which {n_used} are used"
        )
    return Routing(
        is_share=keys.flag("expert_weights_norm", False) or kind == SOFTMAX_OF_CHOSEN, is_sigmoid=kind == SIGMOID,
        factor=factor or 1.0, n_groups=n_groups, groups_used=used, group_best=best if n_groups > 1 else 1,
    )  # fmt: skip
