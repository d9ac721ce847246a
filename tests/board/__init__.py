"""The dashboard in a real Chromium, on a real server: one test per thing that a user comes for.

Each does it as a user does, by role and name, and looks at the effect through the API. Nothing
sleeps: Playwright waits for what is to be seen.
"""
