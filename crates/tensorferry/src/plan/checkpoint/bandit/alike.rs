//! How far one size goes along with another.

/// One part always, the rest the less the further they are apart, in knots or in classes.
pub(super) struct Alike {
    pub(super) always: f64,
    pub(super) reach: f64,
}

impl Alike {
    pub(super) fn at(&self, apart: f64) -> f64 {
        self.always + (1.0 - self.always) * (-apart / self.reach).exp()
    }
}
