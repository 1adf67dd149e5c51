#!/usr/bin/env python3
"""Runs isopoold, `service` and load.py's requests, and kills them at random.

Kills workers (SIGKILL), the supervisor (SIGKILL) and the service (SIGTERM or SIGKILL), and starts
the last two again. At the end prints what became of the requests, how often what was killed, and
what service and supervisor used at the start, in the middle and at the end. The exit code is 1 if
an answer was wrong or did not come, if an error is of a kind that kills do not cause, if a process
ended by itself or with a wrong exit code, or if a process was left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from load import Client, Load
from processes import Program, processes_with, usage_of

# What the zygote imports once, so that the workers that replace killed ones need not.
PRELOADS = {
    "voice_onnx": ["onnxruntime"],
    "text_reader": ["rapidocr_onnxruntime"],
    "file_type": ["magika"],
    "crystal_energy": ["chgnet.model"],
    "text_writer": ["transformers", "transformers.models.gpt2.modeling_gpt2"],
}
EXPLAINED = {"right", "WorkerLost", "SupervisorLost", "DeadlineExceeded", "Disconnected"}
MARK = "SERVICE_SOAK"  # a variable that all processes of this run inherit
LONGEST_START = 600.0  # seconds: a machine with other work imports the libraries for minutes
ANSWERS_BETWEEN_KILLS = 10
SETTLED = 20.0  # seconds after supervisor and service are ready when their memory is compared


class Soak:
    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        self.random = random.Random(chosen.seed)
        self.sockets = (folder / "isopoold.sock", folder / "service.sock")
        self.chosen = chosen
        self.isopool = [str(chosen.programs / "isopool"), "--socket", str(self.sockets[0])]
        self.expected = json.loads((chosen.models / "expected.json").read_text())
        self.kills: Counter[str] = Counter()
        self.faults: list[str] = []
        self.load: Load
        self.right_before = 0  # right answers at the last kill
        self.begin: float | None = None  # when the load began
        self.stopping = False
        self.samples: list[dict[str, float]] = []
        self.mark = f"{os.getpid()}-{chosen.seed}"
        environment = {
            **os.environ,
            MARK: self.mark,
            "ISOPOOL_SOCKET": str(self.sockets[0]),
            "ORT_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "1",
        }
        preloads = [name for model in self.expected for name in PRELOADS.get(model, [])]
        command = [chosen.programs / "isopoold", "--listen", self.sockets[0], "--workers", 2]
        # The machine may have other work: a process that gets little processor time is not stuck.
        command += ["--grace", "5s", "--zygote-timeout", "10m"]
        command += ["--fork-timeout", "1m", "--worker-timeout", "5m"]
        command += ["--python", chosen.python, "--preload-modules", ",".join(preloads)]
        self.supervisor = Program(command, environment, chosen.log)
        command = [chosen.programs / "service", chosen.models, "--socket", self.sockets[1]]
        self.service = Program(command, environment, chosen.log)

    def run(self) -> None:
        self.wait_until_serving()
        self.load = Load(self.sockets[1], self.expected, self.chosen.rate, self.chosen.threads)
        self.begin = begin = time.monotonic()
        due = {what: begin + pause / 2 for what, pause in self.chosen.pauses.items()}
        next_sample = begin + 1
        while (now := time.monotonic()) < begin + self.chosen.seconds and not self.stopping:
            self.watch()
            for what, pause in self.chosen.pauses.items():
                if now >= due[what] and self.kill(what):
                    due[what] = time.monotonic() + pause * self.random.uniform(0.5, 1.5)
            if now >= next_sample:
                self.sample(now - begin)
                next_sample = now + self.chosen.sample
            time.sleep(0.1)
        self.wait_until_serving()
        self.load.stop()
        self.sample(time.monotonic() - begin)
        self.stop()
        self.report(time.monotonic() - begin)

    def end_early(self) -> None:
        """Ends the kills now; the report follows. For SIGTERM; a second one ends the program."""
        if self.stopping or self.begin is None:
            sys.exit("soak: ended by SIGTERM, without a report")
        self.stopping = True

    def figures(self) -> dict[str, object]:
        """The service's own figures; empty while it does not serve."""
        client = Client(self.sockets[1])
        try:
            answer = client.ask({"figures": True})[0].get("figures", {})
        except OSError:
            return {}
        finally:
            client.close()
        assert isinstance(answer, dict)
        return answer

    def wait_until_serving(self) -> None:
        limit = time.monotonic() + LONGEST_START
        while not (
            self.supervisor.ready and self.service.ready and self.figures().get("connected")
        ):
            if time.monotonic() > limit:
                sys.exit(f"soak: no service after {LONGEST_START:g} s; see {self.chosen.log}")
            self.watch()
            time.sleep(0.5)

    def watch(self) -> None:
        """Notices which program is ready, and one that has ended by itself."""
        for name, program in (("supervisor", self.supervisor), ("service", self.service)):
            if (code := program.process.poll()) is not None:
                # A service that starts while there is no supervisor yet ends with an error.
                if not (name == "service" and code == 1 and not program.ready):
                    self.faults.append(f"the {name} ended by itself: {code}")
                time.sleep(0.5)
                program.start()
        if not self.supervisor.ready:
            command = [*self.isopool, "status", "--ready"]
            if subprocess.run(command, capture_output=True).returncode == 0:
                self.supervisor.ready = time.monotonic()
        if not self.service.ready and self.figures():
            self.service.ready = time.monotonic()

    def kill(self, what: str) -> bool:
        """Kills one process, if requests were answered since the last kill.

        Else kills on a busy machine would follow each other before a replacement is ready.
        """
        if not (self.supervisor.ready and self.service.ready):
            return False
        if self.load.total("right") < self.right_before + ANSWERS_BETWEEN_KILLS:
            return False
        if what == "worker":
            return self.kill_worker()
        program = self.supervisor if what == "supervisor" else self.service
        if time.monotonic() - (program.ready or 0) < self.chosen.pauses[what] / 4:
            return False
        number = signal.SIGKILL
        if what == "service" and self.random.random() < 0.5:
            number = signal.SIGTERM
        self.count(f"{what} {number.name}")
        code = program.end(number)
        if code != (0 if number == signal.SIGTERM else -signal.SIGKILL):
            self.faults.append(f"the {what} ended with {code} after {number.name}")
        program.start()
        return True

    def kill_worker(self) -> bool:
        answer = subprocess.run(
            [*self.isopool, "workers", "--json"], capture_output=True, text=True
        )
        if answer.returncode != 0:
            return False
        workers = json.loads(answer.stdout)["workers"]
        serving = [each["pid"] for each in workers if each["state"] in ("serving", "spare")]
        if not serving:
            return False
        try:
            os.kill(self.random.choice(serving), signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.count("worker SIGKILL")
        return True

    def count(self, kill: str) -> None:
        self.kills[kill] += 1
        self.right_before = self.load.total("right")
        print(f"{time.monotonic() - (self.begin or 0):7.1f} s  {kill}", flush=True)

    def sample(self, second: float) -> None:
        answer = subprocess.run([*self.isopool, "metrics"], capture_output=True, text=True)
        lines = [line.rsplit(" ", 1) for line in answer.stdout.splitlines() if line[:1] != "#"]
        metrics = {name: float(value) for name, value in lines}
        if self.chosen.record:
            row = {
                "second": second,
                "requests": self.load.total(),
                "right": self.load.total("right"),
            }
            with open(self.chosen.record, "a") as file:
                file.write(json.dumps({**row, "metrics": metrics}) + "\n")
        ready = (self.supervisor.ready, self.service.ready)
        settled = all(since and time.monotonic() - since > SETTLED for since in ready)
        if not (settled and metrics.get('isopool_clients{class="none"}')):
            return
        private = [n for name, n in metrics.items() if name.startswith("isopool_worker_private_")]
        used = {"second": second, "workers' own memory, MB": sum(private) / 1e6}
        used["shared memory, MB"] = metrics["isopool_shared_memory_bytes"] / 1e6
        used["supervisor's descriptors"] = metrics["isopool_open_descriptors"]
        used["service's descriptors"], used["service's own memory, MB"] = usage_of(
            self.service.process.pid
        )
        guardian = self.supervisor.process.pid
        children = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
        used["supervisor's own memory, MB"] = usage_of(int(children[0]))[1]
        self.samples.append(used)

    def stop(self) -> None:
        for name, program in (("service", self.service), ("supervisor", self.supervisor)):
            if (code := program.end(signal.SIGTERM)) != 0:
                self.faults.append(f"the {name} ended with {code} after SIGTERM")
        limit = time.monotonic() + 5
        while (left := processes_with(f"{MARK}={self.mark}")) and time.monotonic() < limit:
            time.sleep(0.1)
        self.faults += [f"process {pid} was left" for pid in left]

    def report(self, seconds: float) -> None:
        print(f"\n{seconds:.0f} s, seed {self.chosen.seed}\n\n{self.load.table()}")
        for kind, text in self.load.examples.items():
            print(f"first {kind}: {text[:400]}")
        print("\nkills: " + ", ".join(f"{n} x {what}" for what, n in sorted(self.kills.items())))
        if self.samples:
            rows = [self.samples[0], self.samples[len(self.samples) // 2], self.samples[-1]]
            print(f"\n{'':30}{'start':>10}{'middle':>10}{'end':>10}{'least':>10}{'most':>10}")
            for name in rows[0]:
                values = [row[name] for row in rows]
                values += [pick(each[name] for each in self.samples) for pick in (min, max)]
                print(f"{name:30}" + "".join(f"{value:10.1f}" for value in values))
        for kind in sorted({kind for _, kind in self.load.counts} - EXPLAINED):
            self.faults.append(f"{self.load.total(kind)} requests ended with {kind}")
        for fault in self.faults:
            print(f"FAULT: {fault}")
        sys.exit(1 if self.faults or self.load.total("right") == 0 else 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, help="folder, made by package_models.py")
    parser.add_argument("--programs", type=Path, required=True, help="folder of isopoold, service")
    parser.add_argument("--python", default=sys.executable, help="has the models' libraries")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="requests a second, in all")
    parser.add_argument("--threads", type=int, default=4, help="connections to the service")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--worker-every", type=float, default=5, help="seconds between kills")
    parser.add_argument("--supervisor-every", type=float, default=120)
    parser.add_argument("--service-every", type=float, default=90)
    parser.add_argument("--sample", type=float, default=5, help="seconds between samples")
    parser.add_argument(
        "--record", type=Path, help="gets each sample's metrics, a line of JSON each"
    )
    parser.add_argument("--log", type=Path, default=Path("soak.log"), help="of the processes")
    chosen = parser.parse_args()
    chosen.pauses = {
        "worker": chosen.worker_every,
        "supervisor": chosen.supervisor_every,
        "service": chosen.service_every,
    }
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(chosen, Path(folder))
        signal.signal(signal.SIGTERM, lambda *_: soak.end_early())
        try:
            soak.run()
        finally:
            for program in (soak.service, soak.supervisor):
                program.process.kill()
                program.process.wait()


if __name__ == "__main__":
    main()
