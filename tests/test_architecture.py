"""The rules of the house: which way imports run, and who alone may do what."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trtspec

ROOT = Path(trtspec.__file__).parent
# A module imports only from its own layer or those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("runtime", "methods", "spec", "process", "guard"),
    ("trtllm", "checkpoints"),
    (
        "known",
        "memory",
        "check_facts",
        "finding",
        "pair",
        "check",
        "steps",
        "plan",
        "machine",
        "inventory",
        "examine",
        "store",
    ),
    ("front", "artifacts", "deploy", "repository"),
    ("triton", "serving", "measure", "gate"),
    ("cli",),
    ("__main__",),
)
PURE = (
    "spec.model",
    "known",
    "memory",
    "check_facts",
    "finding",
    "pair",
    "check",
    "steps",
    "plan",
    "deploy",
    "repository.layout",
    "trtllm.releases",
    "trtllm.engine_flow",
    "trtllm.llm_flow",
    "runtime.options",
    "runtime.types",
    "front.accounting",
    "front.decision",
    "front.request",
)
EFFECTS = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "unlink",
    "rename",
    "rmtree",
    "print",
}
TORCH_USERS = ("runtime", "triton")
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc"}

MODULES: dict[str, ast.Module] = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text("utf-8"))
    for path in ROOT.rglob("*.py")
    if path != ROOT / "__init__.py"
}


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _at_import(tree: ast.Module) -> Iterator[str]:
    """What is imported when the module is: not inside functions, not for types alone."""
    for node in tree.body:
        if not _typing_only(node) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _imports(node)


def _ours(names: Iterator[str]) -> Iterator[str]:
    for name in names:
        inner = name.removeprefix("trtspec.")
        if inner != name:
            known = inner if inner in MODULES else inner.rpartition(".")[0]
            if known:
                yield known


def _layer(module: str) -> int:
    top = module.partition(".")[0]
    return next(number for number, names in enumerate(LAYERS) if top in names)


def test_every_module_has_a_layer() -> None:
    known = {name for layer in LAYERS for name in layer}
    assert {module.partition(".")[0] for module in MODULES} - known == set()


def test_imports_run_one_way() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, tree in MODULES.items()
        for other in _ours(_imports(tree))
        if _layer(other) > _layer(module)
    ]
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    graph = {module: set(_ours(_at_import(tree))) - {module} for module, tree in MODULES.items()}
    while free := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in free:
            del graph[module]
    assert graph == {}


def test_only_process_starts_processes() -> None:
    calls = {"os.fork", "os.execvp", "os.execv", "os.posix_spawn", "os.spawnv", "os.system", "os.popen"}
    wrong = {
        module
        for module, tree in MODULES.items()
        if any(name.split(".")[0] in ("subprocess", "multiprocessing", "pty") for name in _imports(tree))
        or any(isinstance(node, ast.Attribute) and ast.unparse(node) in calls for node in ast.walk(tree))
    }
    assert wrong == {"process", "guard"}  # guard.py is the script that process.py starts


def _importers(package: str, *, anywhere: bool = True) -> set[str]:
    found = _imports if anywhere else _at_import
    return {module for module, tree in MODULES.items() if any(n.split(".")[0] == package for n in found(tree))}


def test_torch_is_imported_by_the_runtime_alone() -> None:
    assert {module for module in _importers("torch", anywhere=False) if not module.startswith(TORCH_USERS)} == set()


def test_the_runtime_knows_no_triton() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if module.split(".")[0] == "runtime"
        for name in _imports(tree)
        if name.split(".")[0] in ("tritonclient", "triton_python_backend_utils") or name.startswith("trtspec.triton")
    ]
    assert wrong == []


def test_click_is_imported_by_the_cli_alone() -> None:
    assert {module for module in _importers("click") if not module.startswith("cli")} == set()


def test_yaml_is_read_by_the_spec_alone() -> None:
    assert {module for module in _importers("yaml") if not module.startswith("spec")} == set()


def test_tensorrt_llm_is_spelled_under_trtllm_alone() -> None:
    """Flags of its commands and names of its modules; prose may name the product."""
    words = (
        "trtllm-build",
        "--speculative_decoding_mode",
        "--checkpoint_dir",
        "draft_tokens_external",
        "speculative_config",
    )
    wrong = {
        f"{module}: {word}"
        for module, tree in MODULES.items()
        if not module.startswith(("trtllm", "triton.engines"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in words
        if word == node.value
    }
    assert wrong | {module for module in _importers("tensorrt_llm") if not module.startswith("triton")} == set()


def test_modules_are_named_after_what_they_are() -> None:
    assert {module for module in MODULES if module.rpartition(".")[2].strip("_") in NAMELESS} == set()


def test_pure_modules_do_nothing() -> None:
    wrong = [
        f"{module}:{node.lineno} {ast.unparse(node.func)}"
        for module in PURE
        if module in MODULES
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in EFFECTS
    ]
    assert wrong == []
    assert {module for module in PURE if module not in MODULES} == set()


def test_the_command_imports_nothing_heavy() -> None:
    code = (
        "import sys, trtspec.cli.main\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tritonclient', 'tokenizers', 'jinja2', 'pydantic', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
