from stormpetrel.faces.web.security import RateLimit


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_bucket_refills_steadily():
    clock = Clock()
    limit = RateLimit(60, clock=clock)
    assert [limit.take("kim") for _ in range(60)] == [0.0] * 60
    assert limit.take("kim") == 1.0
    clock.now += 0.5
    assert limit.take("kim") == 0.5
    clock.now += 0.5
    assert limit.take("kim") == 0.0
    assert limit.take("kim") == 1.0


def test_a_long_pause_saves_no_more_than_a_minutes_worth():
    clock = Clock()
    limit = RateLimit(10, clock=clock)
    limit.take("kim")
    clock.now += 86_400
    assert [limit.take("kim") for _ in range(11)].count(0.0) == 10


def test_being_refused_costs_nothing():
    clock = Clock()
    limit = RateLimit(60, clock=clock)
    for _ in range(1000):
        limit.take("kim")
    clock.now += 1.0
    assert limit.take("kim") == 0.0


def test_the_memory_is_bounded_and_who_asks_often_is_not_forgotten():
    limit = RateLimit(10, most_keys=100, clock=Clock())
    for _ in range(10):
        limit.take("kim")
    for number in range(1000):
        limit.take(f"address:{number}")
        limit.take("kim")
    assert len(limit) == 100
    assert limit.take("kim") > 0
