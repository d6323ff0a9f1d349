# Sourced by the other scripts: the checkout's virtual environment, made when it is absent, half-made or stale.
#
#   root                 the checkout
#   use_environment E    makes the environment with the extras E (as cpu,dev) and puts it first on PATH
#
# TRTSPEC_VENV names another folder for it, PYTHON another interpreter.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TRTSPEC_VENV:-$root/.venv}

# The interpreter itself, also where the name is that of a virtual environment's link to it.
find_python() {
  local name base='import sys; sys.version_info < (3, 10) and sys.exit(1); print(sys._base_executable)'
  for name in ${PYTHON:-python3 python3.11 python3.12 python3.10}; do
    "$name" -c "$base" 2>/dev/null && return
  done
  echo "Python 3.10 or later is needed; name one with PYTHON=/path/to/python" >&2
  return 1
}

# What an environment depends on, in one line: the project's file and the interpreter.
environment_stamp() {
  { cat "$root/pyproject.toml"; "$1" -c 'import sys; print(sys.version, sys.base_prefix)'; } | sha256sum | cut -d' ' -f1
}

# The extras of the environment when it is complete and of this stamp; fails otherwise.
environment_extras() {
  local have
  have=$(cat "$venv/.stamp" 2>/dev/null) || return 1
  [[ ${have%% *} == "$1" ]] || return 1
  echo "${have##* }"
}

# Whether the comma-separated list $1 holds all of $2.
has_all() {
  local extra
  for extra in ${2//,/ }; do
    [[ ",$1," == *",$extra,"* ]] || return 1
  done
}

install_into() {
  echo "installing into $venv: the extras $2" >&2
  rm -f "$venv/.stamp"
  # Twice quiet: errors are shown, warnings (a page of them where pip's settings name a folder that is gone) are not.
  "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -e "$root[$2]"
  echo "$1 $2" >"$venv/.stamp" # last: without it the environment counts as half-made
}

use_environment() {
  local extras=$1 python stamp have
  python=$(find_python)
  stamp=$(environment_stamp "$python")
  exec 9<"$root/scripts/env.sh"
  flock 9 # one script at a time makes it; the lock goes with the script
  if have=$(environment_extras "$stamp"); then
    has_all "$have" "$extras" || install_into "$stamp" "$have,$extras"
  else
    [[ ! -e $venv || -e $venv/pyvenv.cfg ]] || { echo "$venv is no virtual environment; move it away" >&2; return 1; }
    rm -rf "$venv"
    "$python" -m venv "$venv"
    install_into "$stamp" "$extras"
  fi
  exec 9<&-
  export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
  unset PYTHONHOME PYTHONPATH
}
