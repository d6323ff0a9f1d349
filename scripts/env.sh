# Sourced by the other scripts: the checkout's virtual environment, made when it is absent, half-made or stale.
#
#   root                 the checkout
#   use_environment E    makes the environment with the extras E (as cpu,dev) and puts it first on PATH
#
# TRTSPEC_VENV names another folder for it, PYTHON another interpreter.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TRTSPEC_VENV:-$root/.venv}

find_python() {
  local name
  for name in ${PYTHON:-python3.12 python3.11 python3 python3.10 python3.13}; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "Python 3.10 or later is needed; name one with PYTHON=/path/to/python" >&2
  return 1
}

# What an environment depends on, in one line: the project's file and the interpreter.
environment_stamp() {
  { cat "$root/pyproject.toml"; "$1" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -d' ' -f1
}

# Whether the environment is complete, of this stamp, and has all the extras.
environment_is() {
  local have extra
  have=$(cat "$venv/.stamp" 2>/dev/null) || return 1
  [[ ${have%% *} == "$1" ]] || return 1
  for extra in ${2//,/ }; do
    [[ ",${have##* }," == *",$extra,"* ]] || return 1
  done
}

use_environment() {
  local extras=$1 python stamp
  python=$(find_python)
  stamp=$(environment_stamp "$python")
  exec 9<"$root/scripts/env.sh"
  flock 9 # one script at a time makes it; the lock goes with the script
  if ! environment_is "$stamp" "$extras"; then
    echo "making $venv with $python: the extras $extras" >&2
    [[ ! -e $venv || -e $venv/pyvenv.cfg ]] || { echo "$venv is no virtual environment; move it away" >&2; return 1; }
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$root[$extras]"
    echo "$stamp $extras" >"$venv/.stamp" # last: without it the environment counts as half-made
  fi
  exec 9<&-
  export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
  unset PYTHONHOME PYTHONPATH
}
