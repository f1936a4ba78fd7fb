"""A GGUF file served by llama.cpp, as `llama-server -m FILE --port PORT` would: Ctrl-C ends it.

python examples/serve.py extended.gguf 8080    needs no more than `pip install '.[gguf]'`
"""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_parallel = 1  # else the requests that are answered at a time share the context
server = xllamacpp.Server(params)
print(f"{sys.argv[1]} is served at {server.listening_address}", flush=True)
threading.Event().wait()
