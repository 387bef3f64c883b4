# Sourced by tests/clients/*.sh, beside deploy/packages.sh: Pythons with clients and foreign workers, each of which wants packages of its
# own versions, in .cache/clients/ of the repository's root. REQUIRES: called there.
CLIENTS_CACHE=.cache/clients
SMOLLM2=$CLIENTS_CACHE/smollm2

# Client → the list in requirements/ that has it; tests: the Python of the tests (need_test_python).
declare -A CLIENTS=(
  [openai]=apps [openai_async]=apps [litellm]=apps [langchain]=apps [pydantic_ai]=apps [llama_index]=older [instructor]=older
  [lm_eval]=lm_eval [aiperf]=aiperf [locust]=locust [guidellm]=vllm [vllm_bench]=vllm
  [structured]=apps [structured_older]=older [sillytavern]=tests)

venv_python() { if [ "$1" = tests ]; then echo .venv/bin/python; else echo "$CLIENTS_CACHE/$1/bin/python"; fi; }

# uv installs hundreds of packages in seconds, where pip takes minutes.
need_uv() {
  [ -x $CLIENTS_CACHE/uv/bin/uv ] && return 0
  step python3 -m venv $CLIENTS_CACHE/uv
  step $CLIENTS_CACHE/uv/bin/pip install -q --disable-pip-version-check uv==0.13.9 || die "pip failed (above): no uv"
}

# need_venv LIST: the packages of requirements/LIST.txt, and those of LIST.no-deps.txt without what they ask for, anew where a list has
# changed.
need_venv() {
  [ "$1" != tests ] || return 0
  local list=tests/clients/requirements/$1.txt bare=tests/clients/requirements/$1.no-deps.txt folder=$CLIENTS_CACHE/$1 stamp begin=$SECONDS
  stamp=$folder/$(cat "$list" $([ ! -e "$bare" ] || echo "$bare") | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  need_uv
  local uv=$CLIENTS_CACHE/uv/bin/uv
  say "Python packages of $list, into $folder/"
  rm -rf "$folder"
  # The machine's own certificates and uv's cache beside the environments, which share files with it.
  export SSL_CERT_FILE=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} UV_CACHE_DIR=$PWD/$CLIENTS_CACHE/uv-cache
  step "$uv" venv -q "$folder"
  step "$uv" pip install -q --python "$folder/bin/python" -r "$list" || die "packages of $list cannot be installed (above)"
  if [ -e "$bare" ]; then
    step "$uv" pip install -q --python "$folder/bin/python" --no-deps -r "$bare" || die "packages of $bare cannot be installed (above)"
  fi
  touch "$stamp"
  say "done in $((SECONDS - begin)) s, $(du -sm "$folder" | cut -f1) MB"
}

# The model directory that clients ask, in $SMOLLM2.
need_smollm2() {
  [ -e $SMOLLM2/config.json ] && return 0
  need_venv model
  say "SmolLM2-135M-Instruct, into $SMOLLM2/"
  step "$(venv_python model)" tests/clients/smollm2.py $SMOLLM2
}
