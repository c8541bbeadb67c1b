"""The run in a browser: a view model, a small web server beside the supervisor, and one page.

records.py declares the API's answers; view_model.py and history.py make them, from a supervisor's view or a
run's store (sources.py). guard.py and secret.py decide which requests are let in; limits.py bounds
them; app.py joins these parts, poller.py sets the rhythm, server.py has the thread and the socket. Only app.py
and server.py need starlette and uvicorn (``pip install 'taut[dashboard]'``).
"""
