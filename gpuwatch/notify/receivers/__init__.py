"""The kinds of receiver, one file each. A new kind is a file with a RECEIVER of shape `HttpReceiver`, and its line here."""

from gpuwatch.notify.receivers import webhook
from gpuwatch.notify.receivers.receiver import HttpReceiver

RECEIVERS: dict[str, HttpReceiver] = {"webhook": webhook.RECEIVER}
