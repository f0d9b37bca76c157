"""What each view of the page is told, as plain data: one file per view.

In: a `Source` and what the view is about. Out: dictionaries that become JSON.
Must not import the server.
"""
