"""The run in a browser: a view model, a small web server beside the supervisor, and one page.

records.py says what the API answers; view_model.py and history.py make it, from a supervisor's view (sources.py) or from a
run's store (stored.py). guard.py and secret.py decide who may ask, pure; connection.py bounds what a connection may cost;
app.py joins them, server.py gives it a thread and a socket. starlette and uvicorn (``pip install 'taut[dashboard]'``) are
needed by the last three alone.
"""
