"""The subcommands of `surefoot`, one module each, and the options that they share."""
