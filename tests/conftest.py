"""What all tests share."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and the tests of interruptions would wait for
# ever. Fresh processes of the tests inherit this handler's default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
