"""How the property tests of this folder run: no deadlines, since nothing may hang on the clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "decoding",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("decoding")
