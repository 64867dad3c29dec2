"""Chat templates of known families, for model files that bring none. Not here: which one counts (chat_template.py).

Each is the family's plain form: roles and content, no tools and no thoughts (but `hermes`, the form of tools that most
ChatML models were trained on). A file is recognised by the tokens that only its family has, or by its architecture
where the tokens are plain text.
"""

from collections.abc import Container
from typing import NamedTuple


class Known(NamedTuple):
    """`marks` are tokens that a vocabulary of the family holds; without any the template is chosen by name only."""

    template: str
    marks: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()


_NO_SYSTEM = "{% if m.role == 'system' %}{{ raise_exception('this family has no system role') }}{% endif %}"
_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_HERMES = (
    "{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}"
    "{% endif %}"
    "{% if tools %}{% set ns.system = (ns.system + '\n\n' if ns.system else '') + '# Tools\n\nYou may call one or more "
    "functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML "
    "tags:\n<tools>' %}{% for tool in tools %}{% set ns.system = ns.system + '\n' + tool | tojson %}{% endfor %}"
    "{% set ns.system = ns.system + '\n</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>' %}{% endif %}"
    "{% if ns.system %}{{ '<|im_start|>system\n' + ns.system + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% elif m.role != 'system' or not loop.first %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for call in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first }}"
    "{{ '<tool_call>\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson"
    " + '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_LLAMA2 = (
    "{% set ns = namespace(system='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}"
    "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' + (ns.system + m.content) | trim + ' [/INST]' }}"
    "{% set ns.system = '' %}"
    "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
_MISTRAL = (
    "{{ bos_token }}{% for m in messages %}" + _NO_SYSTEM + "{% if m.role == 'user' %}"
    "{{ '[INST]' + m.content + '[/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
_MISTRAL_V1 = (
    "{{ bos_token }}{% for m in messages %}" + _NO_SYSTEM + "{% if m.role == 'user' %}"
    "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
_MISTRAL_V7 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
_GEMMA = (
    "{{ bos_token }}{% for m in messages %}" + _NO_SYSTEM + "{{ '<start_of_turn>' + "
    "('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_PHI3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
_PHI4 = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
)
_GRANITE = (
    "{% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"
)
_GLM4 = (
    "{{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.role == 'system' %}{{ m.content }}"
    "{% else %}{{ '<｜Assistant｜>' + m.content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)
_HARMONY = (
    "{% for m in messages %}{{ '<|start|>' + ('developer' if m.role == 'system' else m.role) }}"
    "{{ '<|channel|>final' if m.role == 'assistant' }}{{ '<|message|>' }}"
    "{{ '# Instructions\n\n' + m.content if m.role == 'system' else m.content }}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
_TULU = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}"
    "{{ (eos_token if m.role == 'assistant' else '') + '\n' if not (loop.last and m.role == 'assistant') else eos_token"
    " }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
_BITNET = (
    "{% for m in messages %}{{ m.role | capitalize + ': ' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)

KNOWN: dict[str, Known] = {
    "bitnet": Known(_BITNET, architectures=("bitnet", "bitnet-b1.58")),
    "tulu": Known(_TULU, architectures=("olmo2", "olmoe")),
    "gpt-oss": Known(_HARMONY, ("<|start|>", "<|channel|>", "<|message|>", "<|return|>")),
    "llama3": Known(_LLAMA3, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "phi4": Known(_PHI4, ("<|im_start|>", "<|im_sep|>", "<|im_end|>")),
    "chatml": Known(_CHATML, ("<|im_start|>", "<|im_end|>")),
    "gemma": Known(_GEMMA, ("<start_of_turn>", "<end_of_turn>")),
    "granite": Known(_GRANITE, ("<|start_of_role|>", "<|end_of_role|>")),
    "glm4": Known(_GLM4, ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>")),
    "phi3": Known(_PHI3, ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")),
    "deepseek": Known(_DEEPSEEK, ("<｜User｜>", "<｜Assistant｜>")),
    "mistral-v7": Known(_MISTRAL_V7, ("[INST]", "[/INST]", "[SYSTEM_PROMPT]")),
    "mistral": Known(_MISTRAL, ("[INST]", "[/INST]")),
    "mistral-v1": Known(_MISTRAL_V1),
    "llama2": Known(_LLAMA2),
    "hermes": Known(_HERMES),
}
"""From the most to the least telling: the first that fits a file counts."""


def recognised(architecture: str, tokens: Container[str]) -> str | None:
    """The name of the family's template, or None where nothing tells."""
    for name, known in KNOWN.items():
        if architecture in known.architectures or (known.marks and all(mark in tokens for mark in known.marks)):
            return name
    return None
