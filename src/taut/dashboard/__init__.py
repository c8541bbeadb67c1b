"""The run in a browser: a view model, a small web server beside the supervisor, and one page.

records.py says what the API answers; view_model.py and history.py make it, from a supervisor's view or from a run's store
(sources.py). guard.py and secret.py decide who may ask; connection.py bounds what a connection may cost; app.py joins
them, poller.py looks once a second, server.py has the thread and the socket. starlette and uvicorn
(``pip install 'taut[dashboard]'``) are needed by app.py, connection.py and server.py alone.
"""
