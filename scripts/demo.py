"""The demo's second half: from a template to a served model and a table. scripts/demo starts it in its environment.

Only the standard library, the `trtspec` command and plain HTTP are used, as any client would.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
PROMPTS = HERE / "demo_prompts.jsonl"
SPEC = "demo.yaml"
REQUEST_SECONDS = 120
STOP_SECONDS = 30
SAID = {"pays": "pays here", "does not pay": "does not pay here", "about even": "is about even on this machine"}
COUNTS = ("drafted", "accepted", "emitted", "steps")
ROUNDS = 3  # every prompt is asked so many times with and without speculation
PAYS, COSTS = 1.05, 0.95  # a gain where every round is above the one, a loss where every round is below the other


@dataclass(frozen=True)
class Answer:
    """One request's answer as the client saw it; ``later_tokens`` came in the ``seconds`` behind the first event."""

    id: str
    route: str
    text: str
    token_ids: list[int]
    finish_reason: str
    later_tokens: int
    seconds: float
    speculation: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One route: sums over its prompts and rounds, divided last; ``speed_ups`` has one ratio for each round.

    Rates carry their draft length.
    """

    route: str
    prompts: int
    tokens: int
    max_draft_len: int
    acceptance_rate: float | None
    acceptance_length: float | None
    plain_tokens_per_s: float
    speculative_tokens_per_s: float
    speed_up: float
    speed_ups: list[float]
    word: str


def main() -> int:
    raise_on_signals()
    options = arguments()
    folder = options.folder.resolve()
    prepare_spec(folder)
    trtspec(folder, "check", SPEC)
    trtspec(folder, "plan", SPEC)
    trtspec(folder, "build", SPEC)
    try:
        server = json.loads(trtspec(folder, "serve", SPEC, "--detach", "--json"))
        say(f"serving {server['name']} on {server['http']}")
        rounds = measure(partial(ask, http_base(server["http"]), server["name"]))
    finally:
        trtspec(folder, "stop", SPEC)
    divergences = explain_all(rounds, folder / "model_repo" / server["name"])
    rows = [row_of(route, rounds) for route in dict.fromkeys(plain.route for plain, _ in rounds[0])]
    report(rows, divergences, sum(map(len, rounds)), options.json)
    return 1 if any(not divergence["explained"] for divergence in divergences) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where spec, engines and repository go")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    return parser.parse_args()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- the commands ------------------------------------------------------------------------------------------------------


def trtspec(folder: Path, verb: str, *words: str) -> str:
    """Runs one command in that folder, shows what it says, and returns its stdout. Ends the demo where it fails."""
    argv = [sys.executable, "-m", "trtspec", verb, *words]
    say(f"\n$ trtspec {' '.join(argv[3:])}")
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        out, _ = child.communicate()
    except BaseException:
        end(child)
        raise
    sys.stderr.write(out)
    if child.returncode != 0:
        raise SystemExit(f"demo: trtspec {verb} ended with exit code {child.returncode}")
    return out


def end(child: subprocess.Popen[str]) -> None:
    """Gives the command the time to end what it started."""
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def raise_on_signals() -> None:
    """An interrupted demo must still stop its server. (A shell starts background commands deaf to SIGINT.)"""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def prepare_spec(folder: Path) -> None:
    """The cpu-demo template, as `trtspec init` writes it, on ports that are free now."""
    spec = folder / SPEC
    folder.mkdir(parents=True, exist_ok=True)
    say(f"all of this runs in {folder}")
    if spec.exists():
        trtspec(folder, "stop", SPEC)  # a demo that was killed may have left its server
        spec.unlink()
    trtspec(folder, "init", "--template", "cpu-demo", "-o", SPEC)
    text = spec.read_text()
    for key, port in zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True):
        text, count = re.subn(rf"\b{key}: *\d+", f"{key}: {port}", text)
        if count != 1:
            raise SystemExit(f"demo: the template cpu-demo does not set {key} once")
    spec.write_text(text)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def http_base(http: str | int) -> str:
    text = str(http)
    if text.startswith("http"):
        return text.rstrip("/")
    return f"http://{text}" if ":" in text else f"http://127.0.0.1:{text}"


# -- the measurement ---------------------------------------------------------------------------------------------------

Pair = tuple[Answer, Answer]  # one prompt's answer without and with speculation
Asked = Callable[[dict[str, Any], str], Answer]  # a prompt, and `speculation` on or off
Rounds = list[list[Pair]]  # each round has every prompt once, in the file's order


def measure(asked: Asked) -> Rounds:
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    say(f"asking {len(prompts)} prompts, with and without speculation, in {ROUNDS} rounds: some minutes on a CPU")
    asked({**prompts[0], "max_tokens": 16}, "on")  # the first request of a process is not like the others
    return [one_round(asked, prompts, number) for number in range(1, ROUNDS + 1)]


def one_round(asked: Asked, prompts: list[dict[str, Any]], number: int) -> list[Pair]:
    """Every prompt plain and speculative, one after the other, so that both meet the same machine.

    Which of them comes first alternates from prompt to prompt, and for each prompt from round to round.
    """
    pairs = []
    for place, prompt in enumerate(prompts, 1):
        order = ("off", "on") if (place + number) % 2 else ("on", "off")
        answers = {speculation: asked(prompt, speculation) for speculation in order}
        pairs.append((answers["off"], answers["on"]))
        same = "same text" if answers["off"].token_ids == answers["on"].token_ids else "DIFFERENT text"
        where = f"round {number} of {ROUNDS}, {place:2} of {len(prompts)}"
        say(f"  {where}  {prompt['id']:20} {len(answers['on'].token_ids):4} tokens  {same}")
    return pairs


def ask(base: str, model: str, prompt: dict[str, Any], speculation: str) -> Answer:
    body = {
        "messages": json.dumps(prompt["messages"]),
        "max_tokens": prompt["max_tokens"],
        "route": prompt["route"],
        "speculation": speculation,
        "temperature": 0.0,
        "stream": True,
    }
    text, ids, ends, final = "", [], [], {}
    for event in events(f"{base}/v2/models/{model}/generate_stream", body):
        text += event.get("text_output", "")
        ids += as_list(event.get("output_ids", []))
        ends.append((len(ids), time.monotonic()))
        final = event
    return Answer(
        id=prompt["id"],
        route=prompt["route"],
        text=text,
        token_ids=[int(token) for token in ids],
        finish_reason=final["finish_reason"],
        later_tokens=ends[-1][0] - ends[0][0],
        seconds=ends[-1][1] - ends[0][1],
        speculation=json.loads(final["speculation"]),
    )


def events(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
            for line in response:
                if line.startswith(b"data:"):
                    yield checked(json.loads(line[5:]))
    except urllib.error.HTTPError as error:
        raise SystemExit(f"demo: the server answered {error.code}: {error.read().decode()}") from None


def checked(event: dict[str, Any]) -> dict[str, Any]:
    if "error" in event:
        raise SystemExit(f"demo: the server answered an error: {event['error']}")
    return event


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def row_of(route: str, rounds: Rounds) -> Row:
    mine = [[pair for pair in pairs if pair[0].route == route] for pairs in rounds]
    plain, fast = ([pair[side] for pairs in mine for pair in pairs] for side in (0, 1))
    counts = {key: sum(answer.speculation[key] for answer in fast) for key in COUNTS}
    speed_ups = [speed([one for _, one in pairs]) / speed([one for one, _ in pairs]) for pairs in mine]
    return Row(
        route=route,
        prompts=len(mine[0]),
        tokens=sum(len(answer.token_ids) for answer in fast),
        max_draft_len=max(answer.speculation["max_draft_len"] for answer in fast),
        acceptance_rate=divided(counts["accepted"], counts["drafted"]),
        acceptance_length=divided(counts["emitted"], counts["steps"]),
        plain_tokens_per_s=speed(plain),
        speculative_tokens_per_s=speed(fast),
        speed_up=speed(fast) / speed(plain),
        speed_ups=speed_ups,
        word=word_of(speed_ups),
    )


def word_of(speed_ups: list[float]) -> str:
    """A verdict only where every round agrees: what is within a machine's noise is called even."""
    if min(speed_ups) > PAYS:
        return "pays"
    return "does not pay" if max(speed_ups) < COSTS else "about even"


def speed(answers: list[Answer]) -> float:
    """Tokens a second behind the first event, over all answers: the prompt's own pass is left out."""
    return sum(answer.later_tokens for answer in answers) / sum(answer.seconds for answer in answers)


def divided(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# -- losslessness ------------------------------------------------------------------------------------------------------


def explain_all(rounds: Rounds, front: Path) -> list[dict[str, Any]]:
    """Each pair whose ids differ, with the verdict of measure/divergence.py. Opens the model only if there is one."""
    pairs = [pair for one in rounds for pair in one]
    different = [pair for pair in pairs if pair[0].token_ids != pair[1].token_ids]
    bad = [pair[0].id for pair in pairs if pair[0].token_ids == pair[1].token_ids and pair[0].text != pair[1].text]
    if bad:
        raise SystemExit(f"demo: the same ids gave different texts: {', '.join(bad)}")
    if not different:
        return []
    say(f"\n{len(different)} answers differ; measuring the rounding noise they must lie within")
    from trtspec.checkpoints.tokenizer import load_tokenizer
    from trtspec.measure.divergence import explain, measure_floor
    from trtspec.runtime.options import EngineOptions
    from trtspec.runtime.score import score

    decided = json.loads((front.with_name(f"{front.name}__engine") / "1" / "model.yaml").read_text())
    options = EngineOptions.from_dict(decided["options"])
    tokenizer = load_tokenizer(Path(options.target))
    asked = {prompt["id"]: prompt["messages"] for prompt in map(json.loads, PROMPTS.read_text().splitlines())}
    prompts = {name: tokenizer.encode(tokenizer.render_chat(turns), add_special=False) for name, turns in asked.items()}

    def scorer(ids: Any, rows: int) -> Any:
        return score(options, list(ids), rows)

    texts = ([*prompts[plain.id], *plain.token_ids] for plain, _ in rounds[0])
    floor = measure_floor(scorer, texts, options.max_draft_len)
    return [
        {"id": plain.id, **found.to_dict()}
        for plain, fast in different
        if (found := explain(prompts[plain.id], plain.token_ids, fast.token_ids, scorer, floor)) is not None
    ]


# -- the report --------------------------------------------------------------------------------------------------------


def report(rows: list[Row], divergences: list[dict[str, Any]], compared: int, as_json: bool) -> None:
    """``compared``: pairs of answers, over all rounds."""
    if as_json:
        found = {"compared": compared, "identical": compared - len(divergences), "divergences": divergences}
        print(json.dumps({"rounds": ROUNDS, "routes": [asdict(row) for row in rows], **found}))
    else:
        print("\n".join([*table(rows), "", *verdicts(rows, divergences, compared)]))


def table(rows: list[Row]) -> list[str]:
    head = f"{'route':10}{'prompts':>8}{'tokens':>8}{'draft':>7}{'accepted':>10}{'length':>8}{'plain':>10}{'spec.':>10}"
    lines = ["", f"{head}{'speed-up':>10}  by round", f"{'':51}{'tokens/s':>10}{'tokens/s':>10}"]
    for row in rows:
        rate = "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}"
        length = "-" if row.acceptance_length is None else f"{row.acceptance_length:.2f}"
        lines.append(
            f"{row.route:10}{row.prompts:8}{row.tokens:8}{row.max_draft_len:7}{rate:>10}{length:>8}"
            f"{row.plain_tokens_per_s:10.1f}{row.speculative_tokens_per_s:10.1f}{row.speed_up:9.2f}x"
            f"  {' '.join(f'{ratio:.2f}' for ratio in row.speed_ups)}"
        )
    return lines


def verdicts(rows: list[Row], divergences: list[dict[str, Any]], compared: int) -> list[str]:
    lines = []
    for row in rows:
        lines.append(f"{row.route}: speculation {SAID[row.word]} ({spread(row.speed_ups)})")
        if row.word == "does not pay":
            lines.append(
                f"  set `speculation: never` on route {row.route}, or draft less than {row.max_draft_len} tokens"
            )
    lines.append(f"greedy answers identical with and without speculation: {compared - len(divergences)} of {compared}")
    return lines + [f"  {one['id']}, token {one['position']}: {one['verdict']}" for one in divergences]


def spread(speed_ups: list[float]) -> str:
    return f"{min(speed_ups):.2f}x to {max(speed_ups):.2f}x in {len(speed_ups)} rounds"


if __name__ == "__main__":
    sys.exit(main())
