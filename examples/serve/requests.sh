#!/bin/sh
# Requests to a `lora serve` without a key: examples/serve/requests.sh [URL]
set -eu
url=${1:-http://127.0.0.1:8000}

curl --fail-with-body -sS "$url/v1/models"
echo
curl --fail-with-body -sS "$url/v1/completions" -H 'content-type: application/json' \
  -d '{"prompt": "import os\n", "max_tokens": 16, "temperature": 0}'
echo
curl --fail-with-body -sS -N "$url/v1/completions" -H 'content-type: application/json' \
  -d '{"prompt": "def main(", "max_tokens": 16, "seed": 1, "stream": true}'
curl --fail-with-body -sS "$url/tokenize" -H 'content-type: application/json' \
  -d '{"prompt": "import os"}'
echo
