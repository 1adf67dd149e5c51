# Sourced by the other scripts: sets up a machine with Debian or a system that descends from it, and builds
# isopool, step by step. A step that is already done is not repeated. docs/support.md says which systems were tried.
#
#   prepare SET...            apt packages, Python, virtual environment with torch and the named sets of
#                             requirements/SET.txt (and SET-files.txt, installed without dependencies)
#   build PRESET [TARGET...]  configures a preset of CMakePresets.json and builds all or these targets
#
# A variable selects another Python or torch, which has separate folders:
#   ISOPOOL_PYTHON=/usr/bin/python3   the interpreter that workers embed, 3.11 or newer
#   ISOPOOL_TORCH=2.13.0              torch's version, 2.11 or newer
#
# After prepare, these variables are set:
#   python        the virtual environment's interpreter
#   variant       empty, or the suffix of the folders of another Python or torch: -py3.12.1
#   build_folder  (after build) e.g. build/release
#   environment_folder  (set before prepare) another place for the virtual environment
#   called_from   the caller's working folder; the script itself changes to the repository's root

set -euo pipefail
called_from=$PWD
this_script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

default_torch=$(sed -n 's/^torch==//p' requirements/torch.txt)
readonly default_python=/usr/bin/python3 default_torch
chosen_python=${ISOPOOL_PYTHON:-$default_python}
chosen_torch=${ISOPOOL_TORCH:-$default_torch}
# Not for what the scripts start: isopoold refuses variables ISOPOOL_... that are not settings.
export -n ISOPOOL_PYTHON ISOPOOL_TORCH
readonly log=build/setup.log

apt_packages=(
  g++ cmake ninja-build ccache python3 python3-dev python3-venv libboost-dev libmsgpack-cxx-dev
  libgtest-dev libcli11-dev libspdlog-dev libxxhash-dev libtomlplusplus-dev nlohmann-json3-dev
  libsqlite3-dev relacy-dev spin valgrind
)

say() { printf '== %s\n' "$*"; }

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Runs a command with its output in the log. If it fails, prints the end of the log and stops with
# the given message.
logged() {
  local failure=$1
  shift
  printf '\n$ %s\n' "$*" >>"$log"
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    fail "$failure (full log: $log)"
  fi
}

prepare() {
  case "$(uname -s) $(uname -m)" in
    "Linux x86_64" | "Linux aarch64") ;;
    *) fail "unsupported system $(uname -s) on $(uname -m): isopool runs on Linux on x86_64 and arm64" ;;
  esac
  mkdir -p build
  # Without this lock, two scripts at the same time would both run apt and pip.
  exec {setup_lock}>build/setup.lock
  flock -n "$setup_lock" || { say "waiting for another setup in this folder"; flock "$setup_lock"; }
  : >"$log"
  check_system
  install_apt_packages "${apt_packages[@]}"
  # CPython's own tests of its executors, for the Python that the packages brought.
  install_apt_packages "libpython$("$default_python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite"
  check_python
  make_virtual_environment
  install_torch
  local set
  for set in build "$@"; do install_requirements "$set"; done
  exec {setup_lock}>&-
}

# Names a system on which the scripts were not tried, and goes on: the names of packages differ little.
check_system() {
  local name version
  name=$(. /etc/os-release 2>/dev/null || true; echo "${PRETTY_NAME:-unknown system}")
  # Debian's unstable suite has no version.
  version=$(. /etc/os-release 2>/dev/null || true; echo "${ID:-unknown} ${VERSION_ID:-unstable}")
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "apt-get not found on $name: isopool's scripts set up Debian and systems that descend from it" \
      "(needed packages, by their names in Debian: ${apt_packages[*]})"
  case $version in
    "debian 12" | "debian 13" | "debian unstable") say "$name on $(uname -m)" ;;
    "debian "[0-9] | "debian "1[01])
      fail "$name is too old: isopool needs g++ 12, CMake 3.25 and Python 3.11, which Debian 12 has" ;;
    *) say "$name on $(uname -m): the scripts were not tried there, and use the package names of Debian" ;;
  esac
}

install_apt_packages() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == *" ok installed" ]] ||
      missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "apt packages: $# already there"
    return
  fi
  say "apt packages: installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "apt packages are missing, and this user is not root and has no sudo: ask an administrator to run" \
        "apt-get install ${missing[*]}"
    as_root=(sudo)
    # Without a terminal, sudo must not ask for a password.
    [ -t 0 ] || as_root=(sudo -n)
    "${as_root[@]}" true ||
      fail "sudo refused: ask an administrator to run apt-get install ${missing[*]}"
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  logged "apt-get could not reach its package sources" \
    "${apt[@]}" -o APT::Update::Error-Mode=any update
  logged "apt-get could not install ${missing[*]}" \
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

check_python() {
  [ -x "$(command -v "$chosen_python")" ] || fail "ISOPOOL_PYTHON=$chosen_python not found or not executable"
  local version
  version=$(version_of "$chosen_python") || fail "$chosen_python does not run"
  at_least "$version" 3.11 ||
    fail "$chosen_python is Python $version, isopool needs 3.11 or newer: set ISOPOOL_PYTHON"
  at_least "$chosen_torch" 2.11 ||
    fail "ISOPOOL_TORCH=$chosen_torch is too old: isopool needs torch 2.11 or newer"
  variant=
  [ "$(realpath "$(command -v "$chosen_python")")" = "$(realpath "$default_python")" ] ||
    variant+=-py$version
  [ "$chosen_torch" = "$default_torch" ] || variant+=-torch$chosen_torch
  say "Python $version, torch $chosen_torch"
}

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

make_virtual_environment() {
  local environment=${environment_folder:-$PWD/.venv$variant}
  python=$environment/bin/python
  if [ -e "$environment" ]; then
    "$python" -m pip --version >/dev/null 2>&1 ||
      fail "$environment has no working Python and pip: remove that folder"
    [ "$(version_of "$python")" = "$(version_of "$chosen_python")" ] ||
      fail "$environment has Python $(version_of "$python"), not the version of $chosen_python: remove that folder"
    say "$environment: already there"
    return
  fi
  say "$environment: creating it"
  logged "$chosen_python could not make a virtual environment" \
    "$chosen_python" -m venv "$environment"
}

install_torch() {
  local installed
  installed=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' \
    2>/dev/null || true)
  if [ "${installed%%+*}" = "$chosen_torch" ]; then
    say "torch $installed: already there"
    return
  fi
  say "torch $chosen_torch: installing (the largest download, minutes on a slow line)"
  logged "pip could not install torch $chosen_torch: no network, or no torch for this Python version" \
    "$python" -m pip install --disable-pip-version-check --constraint requirements/constraints.txt \
    "torch==$chosen_torch"
}

install_requirements() {
  local set=$1 files=requirements/$1-files.txt
  local stamp=${python%/bin/python}/isopool-$set.sha256 wanted
  local sources=(requirements/constraints.txt "requirements/$set.txt")
  [ ! -e "$files" ] || sources+=("$files")
  wanted=$(sha256sum "${sources[@]}")
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "Python packages for $set: already there"
    return
  fi
  say "Python packages for $set: installing"
  local pip=("$python" -m pip install --disable-pip-version-check)
  local failure="pip could not install requirements/$set.txt: no network, or a version no longer exists"
  # torch is in the list so that no package can replace it.
  logged "$failure" "${pip[@]}" --constraint requirements/constraints.txt \
    --requirement "requirements/$set.txt" "torch==$chosen_torch"
  [ ! -e "$files" ] || logged "$failure" "${pip[@]}" --no-deps --requirement "$files"
  printf '%s\n' "$wanted" >"$stamp"
}

build() {
  local preset=$1 targets=()
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  build_folder=build/$preset$variant
  say "configuring $build_folder"
  logged "CMake could not configure $build_folder" \
    cmake --preset "$preset" -B "$build_folder" "-DISOPOOL_PYTHON_EXECUTABLE=$python"
  say "building $build_folder"
  cmake --build "$build_folder" --parallel "$(parallel_jobs)" "${targets[@]}" </dev/null ||
    fail "the build of $build_folder failed"
}

# How many jobs may run at a time: one for each processor, and so many more (default: 0). Compiling a
# source file that includes torch's headers takes up to 2 GB; so does a test with workers.
parallel_jobs() {
  local more=${1:-0} cores memory limit quota period
  cores=$(nproc)
  memory=$(awk '$1 == "MemAvailable:" { print int($2 / 2097152) }' /proc/meminfo)
  # In a container: the limits of its control group, of version 2 or 1.
  for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    limit=$(cat "$limit" 2>/dev/null || true)
    if [[ $limit =~ ^[0-9]+$ ]] && [ $((limit / 2147483648)) -lt "$memory" ]; then
      memory=$((limit / 2147483648))
    fi
  done
  read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max || quota=max
  if [ "$quota" != max ] && [ $(((quota + period - 1) / period)) -lt "$cores" ]; then
    cores=$(((quota + period - 1) / period))
  fi
  [ "$memory" -ge 1 ] || memory=1
  cores=$((cores + more))
  echo $((cores < memory ? cores : memory))
}

# The --help text of a script is the comment at its top.
show_help() {
  sed -n '2,/^$/ s/^# \{0,1\}//p' "$this_script"
}
