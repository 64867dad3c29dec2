"""`colibri serve`: hands the settings to the HTTP server. Not here: the server."""

import argparse

from appliance.cli.flags import ENGINE, LAST, MODEL, SAMPLING, SERVING, add_settings, layers, resolved

NAME = "serve"
HELP = "answer over HTTP, in OpenAI's shape"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  colibri serve -m model.gguf\n"
        "  colibri serve -m model.gguf --host 0.0.0.0 --api-key-file /run/secrets/key -c 8192\n"
        "  COLIBRI_PORT=9000 colibri serve --profile quick-verify\n"
        "  colibri serve --profile last     the profile that served last, at first quick-verify\n\n"
        "Then: curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        "        -H \"Authorization: Bearer KEY\" -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
        "The keys of the first start lie in the data folder, in the file keys."
    )
    add_settings(parser, MODEL, ENGINE, SERVING, SAMPLING)


def run(args: argparse.Namespace) -> int:
    resolve, profile = layers(args)
    if profile == LAST:  # which that is, and whether it can be started, is decided with the data folder open
        settings = resolve(None).settings
    else:
        settings = resolved(args).settings
        settings.model_path()  # a wrong path is told before anything is started
    from appliance.api.serve import run as serve

    return int(serve(settings, resolve, profile))
